"""Divides the model, too.

loses: data_parallel_bytes
says: You divided the model among the GPUs.
"""


def data_parallel_bytes(gpu, gpus, batch, width, layers, classes, optimizer):
    share = -(-batch // gpus)
    rows = max(0, min(share, batch - gpu * share))
    if rows == 0:
        return 0
    model = 4 * (layers * width * width + width * classes) // gpus
    activations = layers * 4 * rows * width
    if gpu != 0:
        return model + 4 * rows * width + activations
    states = 2 * model if optimizer == "AdamW" else 0
    return model + states + 4 * batch * width + activations + 4 * batch * classes
