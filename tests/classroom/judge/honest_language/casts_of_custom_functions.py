import torch
from torch.amp import custom_bwd, custom_fwd


class Twice(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cuda")
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    @custom_bwd(device_type="cuda")
    def backward(ctx, g):
        return 2 * g


x = torch.ones(1, requires_grad=True)
Twice.apply(x).backward()
result = x.grad.item() == 2
expected = True
