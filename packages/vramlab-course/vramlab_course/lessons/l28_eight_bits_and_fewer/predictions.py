"""What lesson 28 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "zeros": Question(
        "What percentage of the gradients becomes zero in E4M3?",
        unit="percent",
        hint=(
            "E4M3's smallest positive number is 2**-9, about 0.002. Which numbers are rounded to "
            "zero instead?",
            "The loss is a mean over 512 rows of 256 numbers. How large can one gradient be?",
        ),
        mistakes={
            "Eight bits are coarse, but numbers in range survive. Are these in range?": 0,
            "That would be so if half of them were in range. How small is the smallest number?": 50,
        },
    ),
    "kept": Question(
        "How much does the forward pass save with layers that save 8-bit casts?",
        unit="MiB",
        hint=(
            "What does such a layer save instead of its input, and instead of its weight's "
            "bfloat16 cast?",
            "Which other operator saves something, and in how many bits?",
        ),
        mistakes={
            "You halved everything. GELU is no matmul: it saves its input in 16 bits.": 68 * MIB,
            "You left out GELU's input, which is saved in any case.": 4 * 9 * MIB,
            "You left out the casts of the weights, one byte per number.": 4 * 24 * MIB,
        },
    ),
    "readers": Question(
        "How much do three layers with the same input save if each saves its 8-bit casts?",
        unit="MiB",
        hint="Does a layer know what its neighbors have cast?",
        mistakes={
            "That is half of 22, as if they shared the cast. Each layer makes its own.": 11 * MIB,
            "The weights' casts are saved as well, one byte per number.": 24 * MIB,
            "These layers do not save the input itself.": 43 * MIB,
        },
    ),
}
