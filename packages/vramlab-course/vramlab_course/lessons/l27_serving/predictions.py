"""What lesson 27 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "reserved": Question(
        "How many requests fit into 12 GiB if each reserves 2,048 tokens of KV cache?",
        unit="requests",
        hint="How large are 2,048 tokens of 800 KiB, and can a request get a part of its room?",
        mistakes={
            "You gave the last request a part of its room. It gets all of it, or waits.": 8,
            "You counted only keys or only values. The cache holds both.": 15,
            "The remainder serves no request: each gets all of its room, or waits.": 7.68,
        },
    ),
    "paged": Question(
        "How many requests of 330 tokens fit into 12 GiB in pages of 16 tokens?",
        unit="requests",
        hint="How many pages does a request of 330 tokens hold, and how many pages are there?",
        mistakes={
            "That many would fit if every page were full. Last pages are not.": 47.66,
            "That is with reserved room, as before.": lambda served_so: served_so,
            "That is with each request's whole answer reserved, 499 tokens.": 31,
        },
    ),
    "latent": Question(
        "How much does one token take in DeepSeek-V2's cache?",
        unit="KiB",
        hint="Each layer stores a latent of 512 numbers and a positional key of 64. How many bytes "
        "is that for 60 layers?",
        mistakes={
            "You left out the positional key, 64 numbers.": 60 * 512 * 2,
            "The latent is stored once: keys and values are both computed from it.": (
                2 * 60 * 576 * 2
            ),
            "That is the keys and values of all 128 heads.": 60 * 2 * 128 * 128 * 2,
        },
    ),
    "bits": Question(
        "How large is the layer in 4 bits?",
        unit="MiB",
        hint="A number takes half a byte. How many groups of 128 are there, with 2 bytes each?",
        mistakes={
            "You forgot the scales.": 28 * MIB,
            "That is one byte per number. Four bits are half a byte.": 56 * MIB,
        },
    ),
}
