"""What lesson 06 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

WEIGHT_BYTES = 4 * 1024 * 1664
"""Of the lesson's layer whose states leave an unused remainder."""

PREDICTIONS = {
    "made": Question(
        "By how much does memory grow when the AdamW object is created?",
        unit="MiB",
        hint="States are computed from gradients. Has the optimizer seen a gradient yet?",
        mistakes={
            "That is the size of both states. Does anything need them before the first step?": (
                lambda parameters: 2 * parameters
            ),
            "An optimizer updates the model's own parameters. It copies none of them.": (
                lambda parameters: parameters
            ),
        },
    ),
    "first-step": Question(
        "By how much does memory grow over the first step()?",
        unit="MiB",
        hint="How many numbers does AdamW store for each parameter?",
        mistakes={
            "One state per parameter is SGD with momentum. AdamW has two.": (
                lambda parameters: parameters
            ),
            "You counted the gradients too. They were allocated before.": (
                lambda parameters: 3 * parameters
            ),
        },
    ),
    "foreach": Question(
        "How much temporary memory does foreach need for 8 layers?",
        unit="MiB",
        hint="For which parameters does foreach hold a square root at the same moment?",
        mistakes={
            "That is one layer. foreach processes all layers together.": 4 * MIB,
            "You counted two tensors per layer, root and quotient. foreach allocates only the "
            "roots.": 64 * MIB,
        },
    ),
    "zero-grad": Question(
        "How much higher is the peak with set_to_none=False?",
        unit="MiB",
        hint="The peak is near the last layer. Which gradients are alive then in each of the two "
        "cases?",
        mistakes={
            "Zeroed gradients live from the start. With None, when is the first one allocated?": 0,
            "New gradients are allocated one by one. They are never all alive beside the old "
            "ones.": lambda parameters: 2 * parameters,
            "That is the last layer's gradient. With zeros, those of the other layers are alive "
            "at the peak, too.": 8 * MIB,
        },
    ),
    "remainder": Question(
        "How much memory does AdamW's first step() add here?",
        unit="MiB",
        hint="Three tensors of 6.5 MiB fit into a segment of 20. What happens to the remainder "
        "(lesson 02)?",
        mistakes={
            "That is the size of the numbers. Which block gets the rest of the segment?": (
                2 * WEIGHT_BYTES
            ),
            "Only one of the two states is the last block of its segment.": 2 * 7 * MIB,
            "That is one state. AdamW has two.": WEIGHT_BYTES,
        },
    ),
}
