"""What lesson 04 asks its learners to predict."""

from vramlab.units import MIB
from vramlab_course.widgets.questions import Question

VGG16_PARAMETERS = 138_357_544

PREDICTIONS = {
    "vgg": Question(
        "How much memory does VGG16 take on the GPU?",
        unit="MiB",
        hint="How many bytes does a float32 parameter take, and how many bytes does a MiB have?",
        mistakes={
            "Two bytes per parameter is float16. float32 takes four.": 2 * VGG16_PARAMETERS,
        },
    ),
    "largest": Question(
        "How much memory does VGG16's largest tensor take?",
        unit="MiB",
        hint="The last convolution outputs 512 channels of 7 x 7. Which layer reads all of them?",
        mistakes={
            "That is the largest convolution, 512 x 512 x 3 x 3.": 4 * 512 * 512 * 3 * 3,
            "That is the second Linear layer, 4096 x 4096. The first has more inputs.": (
                4 * 4096 * 4096
            ),
        },
    ),
    "adam": Question(
        "How much do VGG16's gradients and Adam's states take together?",
        unit="MiB",
        hint="How many more numbers are stored for each parameter?",
        mistakes={
            "You left one out: Adam has two states for each parameter, beside the gradient.": (
                lambda measured: measured * 2 / 3
            ),
            "You counted the parameters too. The question is what training adds.": (
                lambda measured: measured * 4 / 3
            ),
        },
    ),
    "image": Question(
        "How much does one more image add to the peak?",
        unit="MiB",
        hint=(
            "Once a layer's backward is done, does anything still need the gradient of its output?",
            "The largest output has 64 x 224 x 224 numbers of 4 bytes. How many gradients of "
            "that size are alive at a time?",
        ),
        mistakes={
            "You doubled the outputs. Their gradients are not all alive at the same time.": (
                2 * 58.12 * MIB
            ),
            "You counted the outputs alone. At the peak there are gradients as well.": 58.12 * MIB,
        },
    ),
    "three": Question(
        "How much memory do the three layers take?",
        unit="MiB",
        hint="How many numbers does a Linear layer with M inputs and N outputs have?",
        mistakes={"The third layer has twice as many outputs as the others.": 12 * MIB},
    ),
}
