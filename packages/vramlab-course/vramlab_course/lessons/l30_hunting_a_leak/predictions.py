"""What lesson 30 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "check": Question(
        "How much more memory do the scores hold after every step?",
        unit="MiB",
        hint="Which layers save their input for backward, and which their output (lesson 08)?",
        mistakes={
            "That is the number alone, without its graph.": 512,
            "You left out one of the narrow tensors: the batch itself, or the one that is "
            "squared.": 72 * MIB,
            "You counted the wide tensors. The batch and the squared tensor are saved as well.": 64
            * MIB,
            "You counted one wide tensor. GELU saves its input, and the next layer GELU's "
            "output.": 48 * MIB,
            "You counted the training's own forward pass too. Its backward() frees it.": 160 * MIB,
            "Every score is still referenced, and it references the graph it came from.": 0,
        },
    ),
    "losses": Question(
        "How much more memory do the losses hold after every step?",
        unit="B",
        hint="What has backward() done to the tensors that the graph had saved?",
        mistakes={
            "That is a graph with all its saved tensors. But backward() has run through this "
            "one.": lambda left: left.allocated_bytes,
            "A number of four bytes, yes. How large is the smallest block (lesson 02)?": 4,
        },
    ),
    "report": Question(
        "report() collects nothing: its names are local. How much does it hold after five steps?",
        unit="MiB",
        hint="An error references its traceback, and the traceback the function's frame. Which "
        "tensors have a name in that frame?",
        mistakes={
            "That is one batch. Every call has its own frame, and its own error.": 8 * MIB,
            "The names are local, but their frame is still referenced. By what?": 0,
            "backward() has freed the saved tensors of each loss. What else has a name in the "
            "frame?": 5 * 80 * MIB,
        },
    ),
}
