r"""Lesson 03: a program that runs out of memory, and the snapshot that it left.

It trains a small language model on texts that get longer from step to step. The snapshot is what
PyTorch's own allocator wrote when the memory ran out, on the native engine:

    vramlab native run --torch 2.13.0 --gpu T4 \
        -m vramlab_course.lessons.l03_fragmentation_and_oom.growing_texts

The command writes it again, beside this file.
"""

from __future__ import annotations

import lzma
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SNAPSHOT = Path(__file__).with_name("growing_texts.pickle.xz")

WIDTH, HEADS, LAYERS, WORDS, TEXTS = 1024, 16, 2, 32_000, 32

_NODES = re.compile(r"torch::autograd::(generated::\w+|AccumulateGrad)::apply")
_FOLDERS = re.compile(r"^.*?/(?=torch/)|^.*/")


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Let the positions exchange information, then transform each of them."""
        texts, length, _ = x.shape
        parts = self.qkv(self.norm_1(x)).view(texts, length, 3, HEADS, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        result: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))
        return result


class Model(nn.Module):
    """A language model whose output layer shares its weight with the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a score for each word at each position."""
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(x, self.words.weight)


def train(steps: int) -> None:
    """Train on texts of 256 tokens, then 288, 320 and so on; keep a score of each position."""
    model = Model().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    confidence = []
    for step in range(steps):
        tokens = torch.zeros(TEXTS, 256 + 32 * step, dtype=torch.long, device="cuda")
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        confidence.append(logits.detach().amax(-1))


def _without_folders(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Keep the frames of Python and of autograd's nodes, without the folders of a machine."""
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    events = [event for trace in snapshot["device_traces"] for event in trace]
    kept: dict[int, list[dict[str, Any]]] = {}
    entries = [entry for entry in (*snapshot["segments"], *blocks, *events) if "frames" in entry]
    for entry in entries:
        kept[id(entry["frames"])] = [
            {**frame, "filename": _FOLDERS.sub("", frame["filename"], count=1)}
            for frame in entry["frames"]
            if frame["filename"].endswith(".py") or _NODES.match(frame["name"])
        ]
    # Only now: a list that is dropped may have its id taken by another.
    for entry in entries:
        entry["frames"] = kept.get(id(entry["frames"]), entry["frames"])
    return snapshot


def main() -> None:
    """Record until the memory runs out, and write the snapshot."""
    torch.cuda.memory._record_memory_history()
    try:
        train(60)
    except torch.OutOfMemoryError as error:
        print(error)
        snapshot = _without_folders(torch.cuda.memory._snapshot())
        SNAPSHOT.write_bytes(lzma.compress(pickle.dumps(snapshot)))


if __name__ == "__main__":
    main()
