"""The baseline of Apple's Cut Cross-Entropy: Gemma 2 2B's head and loss in plain PyTorch.

Source: benchmark/__main__.py and benchmark/memory.py in apple/ml-cross-entropy.
"""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy as loss_of

_TOKENS, _VOCABULARY, _WIDTH, _CAP = 8192, 256_000, 2304, 30.0


def soft_capped_loss(mode: str) -> dict[str, int]:
    """Measure how far the peak rises: in the forward pass (`fw`), backward (`bw`), or both.

    The forward pass keeps what backward needs, also where it alone is measured.
    """
    hidden = torch.randn(_TOKENS, _WIDTH, device="cuda", dtype=torch.bfloat16)
    head = torch.randn(_VOCABULARY, _WIDTH, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(_VOCABULARY, (_TOKENS,), device="cuda")
    hidden.requires_grad_(True), head.requires_grad_(True)

    def loss() -> torch.Tensor:
        logits = torch.tanh(hidden @ head.T / _CAP) * _CAP
        return loss_of(logits.float(), labels)

    for _ in range(2):  # the first time, cuBLAS is given its workspaces
        hidden.grad = head.grad = None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.max_memory_allocated()
        result = loss()
        if mode == "bw":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.max_memory_allocated()
        if mode != "fw":
            result.backward()
        rise = torch.cuda.max_memory_allocated() - before
        del result
    return {"peak": rise}
