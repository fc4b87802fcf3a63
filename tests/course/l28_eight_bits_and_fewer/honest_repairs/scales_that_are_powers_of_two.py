"""Scales as in MX formats: a power of two for each row."""

import torch


def train_step(model, x):
    class Packed:
        def __init__(self, tensor):
            largest = tensor.abs().amax(1, keepdim=True)
            self.scale = torch.exp2(torch.ceil(torch.log2(largest / 448)))
            self.numbers = torch.div(tensor, self.scale).to(torch.float8_e4m3fn)

        def unpacked(self):
            return self.numbers.to(torch.float32).mul_(self.scale)

    def pack(tensor):
        return Packed(tensor) if tensor.shape == x.shape else tensor

    def unpack(saved):
        return saved.unpacked() if isinstance(saved, Packed) else saved

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = model(x)
    loss = (y / y.norm(dim=1, keepdim=True)).pow(4).sum()
    loss.backward()
