"""What lesson 18 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "small": Question(
        "How high is the peak with 2 sequences and every block checkpointed?",
        unit="MiB",
        hint="Checkpointing removes activations. How many are there with 2 sequences, and when is "
        "the peak?",
        mistakes={
            "You scaled the peak as with 32 sequences. With 2 it is at another moment.": (
                lambda small, plain, checkpointed: small * checkpointed / plain
            ),
        },
    ),
    "relu": Question(
        "How much does ReLU's backward read and write?",
        unit="MiB",
        hint="Which two tensors does it read, and which one does it write?",
        mistakes={
            "One tensor read, one written: that is forward. Backward reads two.": 32 * MIB,
            "You left out the tensors it reads.": 16 * MIB,
        },
    ),
    "gelu": Question(
        "How much does eager PyTorch save besides the input?",
        unit="MiB",
        hint="Read the line from the inside out: which products save their factors?",
        mistakes={"That is GELU as one operator: it saves a single tensor.": 16 * MIB},
    ),
    "batch-of-one": Question(
        "How much does a batch of one read and write?",
        unit="MiB",
        hint="How large is a weight of 4096 x 4096 numbers of 2 bytes, beside two rows of 4096?",
        mistakes={"You took float32. The layer is in float16.": 4 * 4096**2},
    ),
}
