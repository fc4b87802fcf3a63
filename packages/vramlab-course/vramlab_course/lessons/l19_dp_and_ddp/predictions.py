"""What lesson 19 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

GPU_1_MIB = 94 + 16
"""The peak of every GPU but the first: what the lesson lists for it, and two workspaces."""

PREDICTIONS = {
    "ratio": Question(
        "How many times as high as GPU 1's peak is GPU 0's?",
        unit="times",
        hint="What is on GPU 0's list, and which of its gradients come only when the loss's "
        "tensors have been freed?",
        mistakes={
            "The rows are split evenly. The list of GPU 0 is longer, though.": 1,
            "You left out 96 MiB: AdamW's states, or three tensors of the loss.": (
                lambda measured: measured - 96 / GPU_1_MIB
            ),
            "You left out the outputs, which are gathered on GPU 0.": (
                lambda measured: measured - 32 / GPU_1_MIB
            ),
            "You counted all gradients. Most come when the loss's tensors have been freed.": (
                lambda measured: measured + 48 / GPU_1_MIB
            ),
            "You left out cuBLAS's workspaces, 16 MiB on each GPU.": (
                (48 + 96 + 8 + 32 + 3 * 32) / 94
            ),
        },
    ),
    "wrap": Question(
        "By how much does memory grow when DDP wraps the model?",
        unit="MiB",
        hint="Gradients travel in buckets, a few large flat tensors. When are they allocated?",
        mistakes={
            "That is one bucket. There are several: every gradient has a place in one.": 25 * MIB,
        },
    ),
    "ring": Question(
        "How much crosses the link from GPU 0 to GPU 1?",
        unit="MiB",
        hint="How large is a piece, and in how many rounds does each GPU send one?",
        mistakes={
            "You counted the reduce-scatter only. The all-gather passes the sums on.": 2.25 * MIB,
            "Each half has N - 1 rounds, not N.": 6 * MIB,
        },
    ),
}
