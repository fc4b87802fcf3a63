"""What lesson 01 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "first": Question(
        "By how much does 'used' grow with the first tensor?",
        unit="MiB",
        hint="Page tables, stacks, kernels: what does the driver set up before anything can run?",
        mistakes={
            "That is the tensor alone. What does a process need before it can have one?": 4,
            "That is the segment PyTorch requests. What does a process need before that?": 2 * MIB,
        },
    ),
    "del": Question(
        "By how much does 'used' drop after del?",
        unit="MiB",
        hint="del returns the tensor's memory to its owner. Is that owner PyTorch or the driver?",
        mistakes={
            "PyTorch got that much back. Did it return any of it to the driver?": 300 * MIB,
        },
    ),
    "empty": Question(
        "How much memory does empty_cache() return to the driver?",
        unit="MiB",
        hint="Which memory does no tensor use any more, and is the context part of the cache?",
        mistakes={
            "Nothing was returned after del. But empty_cache() empties the cache itself.": 0,
            "The context stays as long as the process lives, and the first tensor is still "
            "alive.": (lambda readings: readings["del"].used_bytes - readings["before"].used_bytes),
        },
    ),
}
