"""What lesson 16 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "adafactor": Question(
        "How large are the states of PyTorch's Adafactor for the matrix?",
        unit="KiB",
        hint="What is left of the second moment if it stores one number per row and one per "
        "column, for 4,096 rows and 1,024 columns?",
        mistakes={
            "That is Adafactor with momentum, which PyTorch's version does not have.": 16 * MIB,
            "You left out the columns.": 4 * 4096,
            "That is AdamW: two whole matrices.": 32 * MIB,
        },
    ),
    "8bit": Question(
        "How large are the states of 8-bit AdamW for the matrix?",
        unit="MiB",
        hint="There are two moments of 4 Mi numbers. How many blocks of 256 numbers, with a scale "
        "of 4 bytes each, is that?",
        mistakes={
            "You counted one moment. AdamW has two.": lambda measured: measured / 2,
            "You gave every number its own scale. 256 numbers share one.": 40 * MIB,
        },
    ),
    "in-backward": Question(
        "How much lower is the peak with optimizer steps inside the backward pass?",
        unit="MiB",
        hint="How many gradients are alive at most, before and after the change?",
        mistakes={
            "One gradient is still alive while its parameter is updated.": 128 * MIB,
        },
    ),
}
