"""Keys and values of 12 layers grow by more and more tokens, each time in new tensors."""

import torch

total_bytes = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(4 * 2**30 / total_bytes)


def tokens(count: int) -> torch.Tensor:
    return torch.zeros(8, 12, count, 64, dtype=torch.float16, device="cuda")


cache = [tokens(1) for _ in range(24)]
for count in range(1, 1000):
    cache = [torch.cat((old, tokens(count)), dim=2) for old in cache]
