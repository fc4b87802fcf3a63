"""What lesson 09 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "forward": Question(
        "How much memory does the forward pass add?",
        unit="GiB",
        hint="How much does the layer in the picture save, and how many such layers are there?",
        mistakes={
            "That is one layer. BERT-base has twelve.": lambda measured: measured / 12,
            "That is the size of the weights. Activations depend on the batch instead.": (
                lambda parameters: parameters
            ),
        },
    ),
    "train": Question(
        "How much more does the forward pass save in train() mode?",
        unit="MiB",
        hint="A layer's softmax takes 384 MiB. What does the dropout after it save: a mask, and "
        "what else?",
        mistakes={
            "You counted the masks alone. Behind dropout, the softmax's result is saved a second "
            "time.": (12 * (96 + 12 + 12) + 12) * MIB,
            "You counted the softmax after dropout alone. Masks are saved as well.": (
                12 * 384 * MIB
            ),
            "A mask takes one byte per number, not four.": (12 * (2 * 384 + 2 * 48) + 48) * MIB,
        },
    ),
    "peak": Question(
        "How far does the peak rise above the end of the forward pass?",
        unit="MiB",
        hint="Backward begins with the last layer, while almost all activations are alive. Which "
        "gradients exist by then?",
        mistakes={
            "You counted all gradients of the parameters. By the time the last of them is "
            "computed, the activations are freed.": lambda parameters: parameters,
            "You gave every activation a gradient. They take turns (lesson 04).": (
                lambda train_growth: train_growth
            ),
        },
    ),
}
