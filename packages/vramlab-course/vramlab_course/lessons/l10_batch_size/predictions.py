"""What lesson 10 asks its learners to predict."""

from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "sixteen": Question(
        "How high is the peak of a step with a batch of 16?",
        unit="MiB",
        hint="From a batch of 4 to one of 8, how much does each text add?",
        mistakes={
            "You doubled the fixed part too. It does not grow with the batch.": (
                lambda peaks: 2 * peaks[8]
            ),
            "You added the cost of four texts. From 8 to 16 there are eight more.": (
                lambda peaks: 2 * peaks[8] - peaks[4]
            ),
        },
    ),
    "largest": Question(
        "How large is the largest batch that fits?",
        unit="samples",
        hint="How much memory is left above the fixed part, and how many texts fit into that?",
        mistakes={
            "You forgot the fixed part: parameters, states and workspaces.": (
                lambda room, slope: room // slope
            ),
        },
    ),
    "padding": Question(
        "How much does the padding add to weights, gradients and optimizer states?",
        unit="KiB",
        hint="It adds 47 words of 768 numbers. How many tensors have that shape?",
        mistakes={
            "You counted the weights only. A gradient and two states have the same size.": (
                lambda measured: measured / 4
            ),
            "You counted one state. AdamW has two for each weight.": (
                lambda measured: measured * 3 / 4
            ),
        },
    ),
}
