"""What lesson 23 asks its learners to predict."""

from typing import Any

from vramlab_course.widgets.questions import Question

LLAMA_TOKENS = 4096
XL_INPUTS_BYTES = 4 * 16 * 1024 * 1600 * 48
"""The inputs of GPT-2 XL's 48 layers: float32, 16 sequences of 1,024 tokens, hidden size 1,600."""

PREDICTIONS = {
    "autocast": Question(
        "How high is the peak with autocast to bfloat16 alone?",
        unit="GiB",
        hint="Softmax computes in float32 under autocast. In which dtypes are the scores saved "
        "then?",
        mistakes={
            "You halved the activations. The largest of them are saved in both dtypes.": (
                lambda found: found.peak_bytes - found.bytes_by_category["activations"] // 2
            ),
            "You halved everything. Weights and states stay in float32.": (
                lambda found: found.peak_bytes // 2
            ),
        },
    ),
    "micro": Question(
        "How high is the peak with micro-batches of eight sequences?",
        unit="GiB",
        hint="What does not depend on the batch, and what has the first micro-batch left behind?",
        mistakes={
            "You halved everything. Parameters and states do not depend on the batch.": (
                lambda now: now.peak_bytes // 2
            ),
            "The gradients of the first micro-batch are alive while the second one runs.": (
                lambda now, lasting: lasting + (now.peak_bytes - lasting) // 2
            ),
        },
    ),
    "llama": Question(
        "How high is the peak with ZeRO-3 and every layer checkpointed?",
        unit="GiB",
        hint=(
            "Which layers are unsharded while one layer is recomputed?",
            "At which moment is the peak now, and which gradients exist by then?",
        ),
        mistakes={
            "The peak has moved into a layer's backward, where gradients are alive as well.": (
                lambda before, llama: _without_activations(before) + _inputs_bytes(llama)
            ),
            "You removed all activations. The layers' inputs stay.": (
                lambda before: _without_activations(before)
            ),
        },
    ),
    "checkpoint": Question(
        "How high is the peak with all 16 sequences together and each layer checkpointed?",
        unit="GiB",
        hint="Parameters and states, the inputs of 48 layers: what else is there at the end of the "
        "model?",
        mistakes={
            "You left out the logits and their gradients. Checkpoints do not change them.": (
                lambda lasting: lasting + XL_INPUTS_BYTES
            ),
        },
    ),
}


def _without_activations(estimate: Any) -> int:
    rest: int = estimate.peak_bytes - estimate.bytes_by_category["activations"]
    return rest


def _inputs_bytes(model: Any) -> int:
    """Bytes of the bfloat16 inputs of a model's layers, for one sequence of 4,096 tokens."""
    inputs: int = 2 * LLAMA_TOKENS * model.width * model.layers
    return inputs
