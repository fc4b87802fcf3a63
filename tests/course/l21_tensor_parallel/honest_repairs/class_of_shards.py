"""A class that keeps its half."""

import torch


class Half:
    def __init__(self, up, down, device):
        self._up, self._down, self.device = up.to(device), down.to(device), device

    def __call__(self, x):
        return torch.nn.functional.gelu(x.to(self.device) @ self._up) @ self._down


def feed_forward(x, up, down):
    ups, downs = torch.tensor_split(up, 2, dim=1), torch.tensor_split(down, 2, dim=0)
    halves = [Half(ups[gpu], downs[gpu], torch.device("cuda", gpu)) for gpu in (0, 1)]
    results = [half(x).to(x.device) for half in halves]
    return results[0].add_(results[1])
