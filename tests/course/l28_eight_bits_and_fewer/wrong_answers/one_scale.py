"""Gives all rows one scale.

loses: train_step
says: Which rows share a scale
"""


def train_step(model, x):
    def pack(tensor):
        if tensor.shape != x.shape:
            return tensor
        scale = tensor.abs().amax() / 448
        return (tensor / scale).to(torch.float8_e4m3fn), scale  # noqa: F821

    def unpack(packed):
        if isinstance(packed, tuple):
            numbers, scale = packed
            return numbers.float() * scale
        return packed

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):  # noqa: F821  (imported in another cell of the notebook)
        y = model(x)
        loss = torch.nn.functional.normalize(y, dim=1).square().square().sum()  # noqa: F821
    loss.backward()
