"""What lesson 24 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

PREDICTIONS = {
    "adapters": Question(
        "How large are the gradients and AdamW's states of all adapters?",
        unit="MiB",
        hint=(
            "Beside a matrix of rows x columns, A and B have 16 x (rows + columns) numbers. How "
            "many is that for one layer?",
            "A gradient and two states of 2 bytes each: how much is that for 32 layers?",
        ),
        mistakes={
            "You counted the adapters themselves as well.": lambda measured: measured * 4 / 3,
            "That is one layer. There are 32.": lambda measured: measured / 32,
            "You counted one state. AdamW has two for each number.": (
                lambda measured: measured * 2 / 3
            ),
            "Those are the adapters. Each of their numbers also has a gradient and two states.": (
                lambda measured: measured / 3
            ),
            "PyTorch's AdamW has states of the parameter's dtype: here bfloat16, not float32.": (
                lambda measured: measured * 10 / 6
            ),
            "Here adapters, gradients and states are in bfloat16. (PEFT would use float32.)": (
                lambda measured: measured * 12 / 6
            ),
        },
    ),
    "activations": Question(
        "How much does forward leave allocated with adapters beside all matrices, W frozen?",
        unit="GiB",
        hint="Which tensors does a matrix A need for its gradient?",
        mistakes={
            "Only half a percent of the parameters is trained, but gradients have to pass through "
            "all layers.": lambda everything: everything // 200,
            "Every layer still has trained parameters, so its input is still saved.": (
                lambda everything: everything // 2
            ),
        },
    ),
    "nf4": Question(
        "A weight of 4096 x 4096 is 32 MiB in bfloat16. How large is it in 4 bits, with float32 "
        "scales?",
        unit="MiB",
        hint="A byte holds two numbers. How many blocks of 64 are there, with 4 bytes each?",
        mistakes={
            "You forgot the scales.": 8 * MIB,
            "You stored one number per byte. A byte holds two.": 17 * MIB,
            "A scale has 4 bytes, not 4 bits.": 8 * MIB + 2**18 // 2,
        },
    ),
    "trap": Question(
        "How much more does forward leave allocated than with LoRA on 16-bit weights?",
        unit="GiB",
        hint="A gradient that passes through a matmul needs its weight. Would that weight be alive "
        "anyway?",
        mistakes={
            "That is one weight, dequantized for a moment. But autograd saves it for backward.": (
                172 * MIB
            ),
            "That is the size of the 4-bit weights. They were allocated before.": (
                lambda measured: measured * 4.127 / 16
            ),
            "That is true of weights that live in the model. These were created for the "
            "product.": 0,
        },
    ),
}
