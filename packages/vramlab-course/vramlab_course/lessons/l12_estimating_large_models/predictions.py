"""What lesson 12 asks its learners to predict."""

from vramlab.programs import transformer_memory
from vramlab_course.widgets.questions import Question

SBH = 8 * 1024 * 1024
"""Numbers of one hidden state: a batch of 8 x 1,024 tokens, hidden size 1,024."""

PREDICTIONS = {
    "autocast": Question(
        "Under autocast, how many bytes per parameter do weights, gradients and AdamW's states "
        "take?",
        unit="B",
        hint="Which of the three does autocast store in 16 bits?",
        mistakes={
            "That is pure bfloat16, which halves everything. Autocast leaves parameters in "
            "float32.": 8,
            "You halved weights and gradients. Autocast leaves both in float32.": 12,
        },
    ),
    "layer": Question(
        "How much does one layer save in 16 bits?",
        unit="MiB",
        hint="sbh is 8 Mi numbers. How large is as/h, and so the whole bracket?",
        mistakes={
            "You left out the pairs of tokens, 5as/h.": 34 * SBH,
            "You doubled the result, but the formula already counts bytes, not numbers.": (
                lambda measured: 2 * measured
            ),
        },
    ),
    "xl": Question(
        "By the paper's formula, how much do 48 layers save for 32 texts in 16 bits with dropout?",
        unit="GB",
        hint="sbh is 52 million numbers and as/h is 16. How many bytes per number does the bracket "
        "give?",
        mistakes={
            "That is what the document says. What does this formula give?": (
                transformer_memory.zero_paper_activations_bytes(32, 1024, 1600, 48)
            ),
            "You left out the pairs of tokens, 5as/h.": 48 * 34 * 32 * 1024 * 1600,
            "That is one layer. There are 48.": lambda measured: measured / 48,
            "You doubled the result, but the formula already counts bytes, not numbers.": (
                lambda measured: 2 * measured
            ),
        },
    ),
}
