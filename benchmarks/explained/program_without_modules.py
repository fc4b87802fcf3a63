import math

import torch
from torch.nn.functional import gelu, softmax

first = torch.randn(1024, 4096, device="cuda", requires_grad=True)
second = torch.randn(4096, 1024, device="cuda", requires_grad=True)
momenta = {}


def block(x: torch.Tensor) -> torch.Tensor:
    scores = x @ x.transpose(-1, -2) / math.sqrt(x.shape[-1])
    x = x + softmax(scores, -1) @ x
    return x + gelu(x @ first) @ second


for _ in range(3):
    x = torch.randn(8, 512, 1024, device="cuda")
    for _ in range(3):
        x = block(x)
    x.square().mean().backward()
    with torch.no_grad():
        for weight in (first, second):
            momentum = momenta.setdefault(id(weight), torch.zeros_like(weight))
            momentum.mul_(0.9).add_(weight.grad)
            weight -= 0.01 * momentum
            weight.grad = None
