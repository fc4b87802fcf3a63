"""What lesson 14 asks its learners to predict."""

from vramlab.units import GIB, MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "segments": Question(
        "How much does the forward pass save with 3 segments?",
        unit="MiB",
        hint="How many rows of the picture are held in the middle, apart from f0, which was there "
        "before?",
        mistakes={
            "You counted f0. It is the model's input and was allocated before.": 7 * 8 * MIB,
            "The last segment is recorded as usual, so its activations are saved, too.": (
                2 * 8 * MIB
            ),
        },
    ),
    "recompute": Question(
        "How high is the peak of recompute-all, beyond parameters and input?",
        unit="MiB",
        hint="While one layer goes backward, which tensors of 8 MiB does it read and write?",
        mistakes={
            "That is the activation alone. The layer also reads a gradient and writes one.": (
                8 * MIB
            ),
            "There are two gradients: of the layer's output and of its input.": 16 * MIB,
        },
    ),
    "bert": Question(
        "How much does the forward pass save with every layer checkpointed?",
        unit="MiB",
        hint="Each of the twelve layers saves one input. What else is saved outside of the layers?",
        mistakes={
            "Those are the layers' inputs. The embeddings save something, and the output is "
            "alive, too.": 12 * 48 * MIB,
            "That is one layer's input. Each of the twelve saves its own.": 48 * MIB,
            "That is one whole layer. None is saved in full before backward.": 19.5 * GIB / 12,
        },
    ),
}
