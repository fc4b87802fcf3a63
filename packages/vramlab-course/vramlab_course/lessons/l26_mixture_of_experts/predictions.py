"""What lesson 26 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

EVEN_BYTES = 240.34 * MIB
"""What a rank's forward pass leaves if all experts get as many tokens."""

PREDICTIONS = {
    "weights": Question(
        "How large are Mixtral's weights?",
        unit="GiB",
        hint="How many bytes are 32 layers of 8 experts with 3 matrices of 4096 x 14336 numbers "
        "each, in bfloat16?",
        mistakes={
            "That is 8 times 7 billion, as in the name. But attention and embeddings exist only "
            "once.": 56e9 * 2,
            "Those are the parameters that compute for one token. All experts have to be in "
            "memory.": 12.88e9 * 2,
        },
    ),
    "kept": Question(
        "How much does a layer with 8 experts leave allocated if each token goes to two?",
        unit="MiB",
        hint="Which tensors have a row per token, and which have a row per pair of a token and its "
        "expert?",
        mistakes={
            "That is eight times as much. But how many experts compute for a token?": 8 * 128 * MIB,
            "That is twice as much. But the output exists once, however many experts there are.": (
                256 * MIB
            ),
            "That is one expert per token. Here a token has two, and each saves its activations.": (
                128 * MIB
            ),
        },
    ),
    "crowd": Question(
        "How much does the forward pass leave allocated on rank 0?",
        unit="MiB",
        hint="With balanced load, a quarter of all tokens have expert 0 among their two. Which "
        "tensors grow with the tokens that arrive, and which with the rank's own tokens?",
        mistakes={
            "Twice as many tokens arrive. But the results and the output of the rank's own tokens "
            "stay the same.": 2 * EVEN_BYTES,
            "That is true on one GPU with all experts. Here the popular expert's rank gets more "
            "tokens.": EVEN_BYTES,
        },
    ),
}
