"""What lesson 05 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "forward": Question(
        "How much memory does the first forward pass add?",
        unit="MiB",
        hint="Which outputs does autograd save for backward, and which one has a name?",
        mistakes={
            "You counted the batch too. It was allocated before.": 200 * MIB,
            "That is what autograd saves. But the name y keeps a tensor alive, too.": 80 * MIB,
            "You counted y twice. It has a name, but no operation saves it for backward.": (
                240 * MIB
            ),
        },
    ),
    "peak": Question(
        "How high is the peak of the backward pass?",
        unit="MiB",
        hint="Which tensors does the last layer need, and which does it create, before anything "
        "is freed?",
        mistakes={
            "You added all gradients of the parameters. The peak comes earlier, and from larger "
            "tensors.": lambda allocated, parameters: allocated + parameters,
            "That was allocated when backward began. It rises from there.": (
                lambda allocated: allocated
            ),
        },
    ),
    "nameless": Question(
        "How high is the peak with loss = model(x).sum()?",
        unit="MiB",
        hint="Which tensor is already freed at the peak, and how large was it?",
        mistakes={
            "That is the peak with y. Without the name, is y still alive then?": (
                lambda measured: measured + 80 * MIB
            ),
        },
    ),
    "backward": Question(
        "What does memory_allocated() return after loss.backward()?",
        unit="MiB",
        hint="Which tensors outlive backward, and which thread multiplied matrices for the first "
        "time?",
        mistakes={
            "You left out the second workspace: backward runs in its own thread.": (
                lambda measured, workspace: measured - workspace
            ),
            "You left out both of cuBLAS's workspaces.": (
                lambda measured, workspace: measured - 2 * workspace
            ),
            "You left out y. Its name keeps it alive.": lambda measured: measured - 80 * MIB,
            "You counted the tensors saved for backward. They have been freed.": (
                lambda measured: measured + 80 * MIB
            ),
        },
    ),
    "applications": Question(
        "How much memory does the forward pass add with range(10)?",
        unit="MiB",
        hint="Each application creates an output. Which of them are saved for backward, and which "
        "has a name?",
        mistakes={
            "That would be float32. In float16 a number takes two bytes.": 2 * 10 * 20 * MIB,
            "You left out the last output. It has a name.": 9 * 20 * MIB,
            "That is one application. Backward needs the input of each.": 20 * MIB,
        },
    ),
}
