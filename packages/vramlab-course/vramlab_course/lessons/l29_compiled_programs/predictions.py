"""What lesson 29 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "kept": Question(
        "How much does a compiled block save, besides its input?",
        unit="MiB",
        hint=(
            "A matmul saves its input, for its weight's gradient. Which tensors are the inputs of "
            "gate, up and down?",
            "gate and up read the normalized rows, down reads silu(gate) * up. What does the "
            "backward pass of silu need?",
        ),
        mistakes={
            "You kept silu(gate). It can be recomputed from gate, element by element.": 272 * MIB,
            "You left out the input of down, the product of silu(gate) and up.": 144 * MIB,
            "That is eager PyTorch.": 320 * MIB,
        },
    ),
    "pool": Question(
        "How much is reserved for the graph's private pool?",
        unit="MiB",
        hint=(
            "During capture, freed blocks are reused as usual. How many results are alive at a "
            "time?",
            "cuBLAS needs a workspace on the capture's stream, 8.125 MiB. How large is its "
            "segment?",
        ),
        mistakes={
            "Those are the results. cuBLAS needs a workspace on the graph's stream, too.": 64 * MIB,
            "That is four results and a workspace. During capture, blocks are reused.": 148 * MIB,
            "That is the last result alone. The addresses of the others are in the graph, too.": 32
            * MIB,
        },
    ),
}
