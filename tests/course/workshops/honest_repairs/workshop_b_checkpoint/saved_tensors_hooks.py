"""As PyTorch does it: what is saved is a number, and is computed again when the first is needed."""

import torch
from torch.autograd.graph import saved_tensors_hooks


class _Filled(Exception):
    """Everything that was saved is there again."""


def checkpoint(function, x):
    count, again = [], {}

    def pack(tensor):
        count.append(None)
        return len(count) - 1

    def unpack(number):
        if not again:
            numbers = iter(range(len(count)))

            def keep(tensor):
                again[next(numbers)] = tensor.detach()

            with torch.enable_grad(), saved_tensors_hooks(keep, lambda kept: kept):
                function(x.detach().requires_grad_(x.requires_grad))
        return again.pop(number)

    with saved_tensors_hooks(pack, unpack):
        return function(x)
