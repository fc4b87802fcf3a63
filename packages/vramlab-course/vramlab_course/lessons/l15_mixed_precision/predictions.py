"""What lesson 15 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

WEIGHT = 4096 * 4096
"""Numbers in one of the lesson's two weights."""

PREDICTIONS = {
    "autocast": Question(
        "How much memory does the forward pass add under autocast?",
        unit="MiB",
        hint="A matmul needs operands of one dtype. Which tensors have to be cast from float32?",
        mistakes={
            "Outputs are halved, yes. But where do the 16-bit operands come from?": 8 * MIB,
            "You left out the cast of the input, 2 MiB.": lambda measured: measured - 2 * MIB,
        },
    ),
    "lost": Question(
        "In how many of the thousand steps does the weight change?",
        unit="times",
        hint="Above 1, bfloat16's numbers are 1/128 apart. Which of them is nearest to 1.0001?",
        mistakes={"That is float32. In bfloat16 each sum is rounded.": 1000},
    ),
    "no-grad": Question(
        "How much memory do two calls add under no_grad and autocast?",
        unit="MiB",
        hint="Activations are freed. What does autocast hold until its region ends?",
        mistakes={
            "No activation stays. But autocast's cache holds the cast weights.": 0,
            "The second call finds the first one's casts in the cache.": 2 * 2 * 2 * WEIGHT,
            "That is one weight. There are two.": 2 * WEIGHT,
        },
    ),
}
