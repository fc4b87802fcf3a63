"""Keeps two bytes a number.

loses: train_step
says: How many bytes does each number
"""


def train_step(model, x):
    def pack(tensor):
        if tensor.shape != x.shape:
            return tensor
        return tensor.bfloat16(), 1  # needs no scale, and is too large

    def unpack(packed):
        if isinstance(packed, tuple):
            numbers, scale = packed
            return numbers.float() * scale
        return packed

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):  # noqa: F821  (imported in another cell of the notebook)
        y = model(x)
        loss = torch.nn.functional.normalize(y, dim=1).square().square().sum()  # noqa: F821
    loss.backward()
