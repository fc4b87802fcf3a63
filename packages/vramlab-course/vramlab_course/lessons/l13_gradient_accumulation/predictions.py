"""What lesson 13 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "second": Question(
        "How much higher is the peak of the second micro-batch?",
        unit="MiB",
        hint="At both peaks the last layer's new gradient has just been computed. Which gradients "
        "does the second micro-batch find beside it?",
        mistakes={
            "The last layer's old gradient counts, too: the new one is computed beside it, and "
            "added only then.": 12 * MIB,
            "That is one layer's gradient. Those of the other layers stay as well.": 4 * MIB,
            "Activations are freed after each micro-batch. What stays?": 0,
        },
    ),
    "itself": Question(
        "How many times as large as it should be is the gradient?",
        unit="times",
        hint="How many quarters of the loss does `loss` hold after `+=`?",
        mistakes={
            "You read it as `loss = loss / accumulation_steps`. The line says `+=`.": 1,
            "That is compared with the whole loss. But the right value is a quarter of it.": 1.25,
        },
    ),
    "collected": Question(
        "How high is the peak with one backward() on the sum of the losses?",
        unit="MiB",
        hint="When is the first micro-batch's graph freed, and what does it hold?",
        mistakes={
            "That is one graph at a time, as when each loss goes backward alone. The sum holds "
            "all four.": (64 + 16 + 16 + 16) * MIB,
            "That is the activations alone.": 4 * 64 * MIB,
            "That is activations and parameters. Each graph holds its input as well.": (
                (4 * 64 + 16) * MIB
            ),
        },
    ),
}
