"""VGG16, configuration D: layers, parameters and output sizes.

Source: arXiv 1409.1556, table 1, column D; the layers' order and the 7 x 7 average pooling are
torchvision's (torchvision/models/vgg.py).
"""

from __future__ import annotations

from itertools import pairwise

from vramlab.cuda_rules.sizes import tensor_bytes
from vramlab.programs.vgg16 import CONVOLUTIONS as CONVOLUTIONS
from vramlab.programs.vgg16 import FULLY_CONNECTED as FULLY_CONNECTED
from vramlab.programs.vgg16 import IMAGE as IMAGE
from vramlab_course.formulas.parameters import conv2d, linear


def parameter_counts() -> list[int]:
    """Return the elements of each weight and bias, in the order of `model.parameters()`."""
    counts: list[int] = []
    channels = IMAGE[0]
    for outputs in CONVOLUTIONS:
        if isinstance(outputs, int):
            counts += [conv2d(channels, outputs, 3, bias=False), outputs]
            channels = outputs
    for inputs, outputs in pairwise(FULLY_CONNECTED):
        counts += [linear(inputs, outputs, bias=False), outputs]
    return counts


def parameters() -> int:
    """Return the number of parameters: 138,357,544."""
    return sum(parameter_counts())


def feature_counts() -> list[tuple[str, int]]:
    """Return each layer's outputs for one image, with its kind ('convolution' or 'pooling')."""
    counts: list[tuple[str, int]] = []
    channels, size = IMAGE[0], IMAGE[1]
    for outputs in CONVOLUTIONS:
        if isinstance(outputs, int):
            channels = outputs
            counts.append(("convolution", channels * size * size))
        else:
            size //= 2
            counts.append(("pooling", channels * size * size))
    return counts


def layer_outputs_bytes(batch: int = 1) -> int:
    """Return the bytes of the image and of all outputs, in float32.

    The outputs are those of convolutions, poolings and Linear layers.
    ReLU works in place, and the average pooling to 7 x 7 has nothing to do. This is how the
    document's 58.12 MB is added up (nothing is rounded to blocks).
    """
    channels, rows, columns = IMAGE
    elements = channels * rows * columns
    elements += sum(count for _, count in feature_counts()) + sum(FULLY_CONNECTED[1:])
    return tensor_bytes((batch, elements))


def forward_requests_bytes(batch: int = 1, workspace_bytes: int = 0) -> list[int]:
    """Return what a forward pass in training allocates and saves, in order, without the images.

    The output of every layer, because the next one needs it in the backward pass; and besides: for
    every max pooling the place of each maximum, an int64; the output of the average pooling, a
    copy; for both dropouts an output, and a mask of one byte per element.

    Args:
        batch: images.
        workspace_bytes: what the first Linear layer leaves in cuBLAS's workspace; 0 if it is there.
    """
    requests_bytes: list[int] = []
    for kind, count in feature_counts():
        requests_bytes.append(tensor_bytes((batch, count)))
        if kind == "pooling":
            requests_bytes.append(tensor_bytes((batch, count), "int64"))
    features, *hidden, classes = FULLY_CONNECTED
    requests_bytes.append(tensor_bytes((batch, features)))
    for number, width in enumerate(hidden):
        requests_bytes.append(tensor_bytes((batch, width)))
        if number == 0:
            requests_bytes.append(workspace_bytes)
        requests_bytes.append(tensor_bytes((batch, width)))
        requests_bytes.append(tensor_bytes((batch, width), "bool"))
    requests_bytes.append(tensor_bytes((batch, classes)))
    return requests_bytes


def peak_per_image_bytes() -> int:
    """Return what an image adds to the peak of a training step, besides the image itself.

    The peak is where the gradient of the first Linear layer's weight is computed: 392 MiB, the
    largest of all. By then, what the classifier saved has been freed, and the gradients of that
    layer's output and input exist. Everything that the features saved is still allocated.
    """
    features, *hidden, classes = FULLY_CONNECTED
    given_back_bytes = tensor_bytes((classes,))
    for width in hidden:
        given_back_bytes += 2 * tensor_bytes((width,)) + tensor_bytes((width,), "bool")
    gradients_bytes = tensor_bytes((hidden[0],)) + tensor_bytes((features,))
    return sum(forward_requests_bytes()) - given_back_bytes + gradients_bytes
