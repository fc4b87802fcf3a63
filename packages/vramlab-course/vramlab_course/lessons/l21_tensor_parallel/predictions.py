"""What lesson 21 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "orders": Question(
        "Column, then row: how large are the tensors of all collectives together?",
        unit="MiB",
        hint="Which tensor is a partial sum in forward, and whose gradient is one in backward?",
        mistakes={
            "That is forward alone. The gradient of the input is a partial sum as well.": 4 * MIB,
            "The wide tensor inside is never gathered.": 32 * MIB,
        },
    ),
    "activations": Question(
        "How much does forward save on each of 8 ranks?",
        unit="MiB",
        hint="Which tensors lie outside of the split matrices: those of norms, inputs, dropout "
        "masks?",
        mistakes={
            "That is an eighth of everything. Tensors outside of the matrices are not split.": 74
            * MIB,
        },
    ),
}
