"""What lesson 20 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "layers": Question(
        "How much of the nine parameters can GPU 0's program use at most at one moment?",
        unit="B",
        hint="One layer is unsharded. What does GPU 0 hold of the other two?",
        mistakes={
            "All nine are never there together: La is resharded before Lb is gathered.": 36,
            "GPU 0 also holds its own shards of the other two layers.": 12,
        },
    ),
    "peak": Question(
        "How many whole layers of 16 MiB are alive at the peak?",
        unit="layers",
        hint="The current layer has parameters and a gradient. What is gathered ahead, and what is "
        "still being reduced, at that moment?",
        mistakes={
            "That is the layer that computes. Others are being gathered and reduced.": 1,
            "Its parameters and gradient, yes. What is prefetched, and what is still being "
            "reduced?": 2,
        },
    ),
    "travel": Question(
        "How many times as much as DDP does stage 3 send?",
        unit="times",
        hint="Count halves of an all-reduce: how often are parameters gathered, and gradients "
        "reduce-scattered?",
        mistakes={
            "You counted halves. DDP's all-reduce is two of them.": 3,
            "Backward needs the parameters, too, and they have been resharded by then.": 1,
        },
    ),
    "stage1": Question(
        "How large are the optimizer states of rank 7?",
        unit="MiB",
        hint="ZeroRedundancyOptimizer assigns whole parameters. How many are there for eight "
        "ranks?",
        mistakes={
            "That is an eighth of all states. But whole parameters are assigned, not parts.": 6
            * 8
            * MIB
            / 8,
            "That is one layer's. Is there a layer for each of eight ranks?": 8 * MIB,
            "That is all states, as with DDP. Stage 1 shards them.": 6 * 8 * MIB,
        },
    ),
}
