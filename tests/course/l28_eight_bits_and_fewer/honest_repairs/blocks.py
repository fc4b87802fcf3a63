"""Blocks of 32 with powers of two, as MX formats have them, and a class for what waits."""

import torch


class Waiting:
    def __init__(self, tensor):
        blocks = tensor.reshape(-1, 32)
        _, power = torch.frexp(blocks.abs().amax(1, keepdim=True))
        self.power, self.shape = power.to(torch.int8), tensor.shape
        self.numbers = torch.ldexp(blocks, 8 - power).to(torch.float8_e4m3fn)

    def restored(self):
        return torch.ldexp(self.numbers.float(), self.power.int() - 8).view(self.shape)


def train_step(model, x):
    def pack(tensor):
        if tensor.shape != x.shape or not tensor.is_contiguous():  # a weight, or an expanded norm
            return tensor
        return Waiting(tensor)

    def unpack(kept):
        return kept.restored() if isinstance(kept, Waiting) else kept

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = model(x)
        loss = torch.nn.functional.normalize(y, dim=1).square().square().sum()
    loss.backward()
