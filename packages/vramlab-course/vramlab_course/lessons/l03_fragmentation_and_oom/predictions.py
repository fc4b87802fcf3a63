"""What lesson 03 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

LENGTHS = range(600, 1690, 72)
"""Rows of the lesson's batches; a row of `hidden` takes 1 MiB."""
FEATURES = [length * 6 // 10 for length in LENGTHS]

PREDICTIONS = {
    "largest": Question(
        "How large is the largest tensor that fits now?",
        unit="MiB",
        hint="Can one tensor begin in one free block and end in the other?",
        mistakes={
            "That much is free, but not in one piece.": 1000 * MIB,
            "That is the process's limit. A live tensor already uses part of it.": 1100 * MIB,
        },
    ),
    "need": Question(
        "How much is allocated at the worst moment?",
        unit="MiB",
        hint="When the last and longest batch is computed, which tensors are alive?",
        mistakes={
            "You left out the last `hidden`.": sum(FEATURES) * MIB,
            "You left out the last features: they are cloned while `hidden` is still alive.": MIB
            * (sum(FEATURES[:-1]) + LENGTHS[-1]),
            "You kept every `hidden`. del frees each of them.": MIB
            * (sum(FEATURES) + sum(LENGTHS)),
        },
    ),
    "tried": Question(
        "You allocate 5 MiB. How much did PyTorch try to allocate, according to the message?",
        unit="MiB",
        hint="PyTorch asks the driver for a segment. How large is one in the large pool "
        "(lesson 02)?",
        mistakes={
            "That is what you asked PyTorch for. What did PyTorch ask the driver for?": 5 * MIB,
            "Only requests of 10 MiB and more are rounded up to 2 MiB. Smaller ones share a "
            "segment.": 6 * MIB,
        },
    ),
    "extreme": Question(
        "How much is reserved for 100 tensors of 7 MiB?",
        unit="MiB",
        hint="How many tensors of 7 MiB fit into a segment of 20?",
        mistakes={
            "That is the size of the tensors. What remains unused in each segment?": 700 * MIB,
            "You gave each tensor its own segment. Two of them share one.": 2000 * MIB,
        },
    ),
}
