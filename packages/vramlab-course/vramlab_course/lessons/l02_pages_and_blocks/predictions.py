"""What lesson 02 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "tiny": Question(
        "What does memory_allocated() return for 300 float32 numbers?",
        unit="B",
        hint="How large was the block for four bytes, and what if every block is a multiple of it?",
        mistakes={
            "That is the tensor's own size. Blocks are rounded up to a multiple of something.": (
                1200
            ),
            "Blocks are not powers of two: they are multiples of the smallest block.": 2048,
        },
    ),
    "second": Question(
        "What does memory_reserved() return after a second tensor?",
        unit="MiB",
        hint="Is there still room in the segment that PyTorch already has?",
        mistakes={
            "You gave each tensor its own segment. One segment holds many blocks.": 4 * MIB,
        },
    ),
    "nine": Question(
        "How much is reserved after two tensors of 9 MiB?",
        unit="MiB",
        hint="Which row of the table applies, and do two such tensors fit into that segment?",
        mistakes={
            "You gave each tensor its own segment. Two of 9 MiB fit into one of 20.": 40 * MIB,
            "That is the size of the tensors. PyTorch reserves whole segments.": 18 * MIB,
        },
    ),
    "empty": Question(
        "How much memory does empty_cache() return to the driver here?",
        unit="MiB",
        hint="Which segments have no live block left?",
        mistakes={
            "You counted everything that is cached. Only segments that are free as a whole can "
            "be returned.": lambda cached: cached,
        },
    ),
}
