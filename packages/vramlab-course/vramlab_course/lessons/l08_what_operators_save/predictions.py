"""What lesson 08 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

X_BYTES = 16 * MIB

PREDICTIONS = {
    "gelu": Question(
        "How much memory does the forward pass leave allocated with GELU?",
        unit="MiB",
        hint="Does the derivative of GELU need its input or its output?",
        mistakes={
            "That was ReLU, which saves its output. The next layer saves the same tensor.": (
                32 * MIB
            ),
        },
    ),
    "mlp": Question(
        "How much does the MLP block save for backward, x included?",
        unit="MiB",
        hint="What do the two Linear layers save, what does GELU save, and what does dropout save?",
        mistakes={
            "You left out x.": 132 * MIB,
            "Dropout's mask takes one byte per element, not four.": 160 * MIB,
            "You left out dropout's mask.": 144 * MIB,
            "That would be ReLU. GELU saves its input as well.": 84 * MIB,
        },
    ),
    "names": Question(
        "How much less memory does net_b(net_a(x)) leave allocated?",
        unit="MiB",
        hint="The name y is gone. What else holds that tensor?",
        mistakes={
            "That is what the document says. But is the name the only reference to y?": X_BYTES,
            "Only y could be freed: z has a name in both versions.": 2 * X_BYTES,
        },
    ),
    "reshape": Question(
        "x takes 16 MiB. How much memory does x.t().reshape(-1) add?",
        unit="MiB",
        hint="A one-dimensional view needs one stride. In which order do x.t()'s numbers lie in "
        "memory?",
        mistakes={
            "t() alone is a view. But no single stride reads x.t() row by row.": 0,
            "t() copies nothing: it only swaps the strides.": 2 * X_BYTES,
        },
    ),
}
