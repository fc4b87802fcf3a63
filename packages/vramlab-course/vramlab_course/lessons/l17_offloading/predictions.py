"""What lesson 17 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PARAMETERS = 6 * 2048**2
"""Of the model whose optimizer runs on the host."""

PREDICTIONS = {
    "activations": Question(
        "How much is copied to the host during forward?",
        unit="MiB",
        hint=(
            "How often does the picture show each tensor being saved?",
            "The model's input needs no gradient. Which weight is therefore not saved?",
        ),
        mistakes={
            "You counted each tensor once. It is copied every time it is saved.": 80 * MIB,
            "You left out the weights. They are saved as well.": 144 * MIB,
            "You counted all four weights. The first is not saved.": 160 * MIB,
        },
    ),
    "optimizer": Question(
        "How much does a step copy, in both directions together?",
        unit="MiB",
        hint="In which dtype does each number cross? Where do .float() and .half() stand?",
        mistakes={
            "You copied float32. Both conversions happen on the host.": 8 * PARAMETERS,
            "You copied the states too. They never leave the host.": 16 * PARAMETERS,
            "That is one direction. Gradients leave the GPU, and parameters come back.": (
                2 * PARAMETERS
            ),
        },
    ),
    "layers": Question(
        "How much does a step copy both ways if the layers visit the GPU one by one?",
        unit="MiB",
        hint="How often does each layer run forward, and where do its gradients end up?",
        mistakes={
            "Parameters are copied twice, because backward recomputes each layer; and gradients "
            "go back.": lambda measured: measured * 2 / 3,
            "That is one of three copies.": lambda measured: measured / 3,
        },
    ),
}
