"""A GPT-2 of 124 million parameters and its training loop: a script to practice on.

    vramlab run -m vramlab_course.programs.minigpt --batch-size 8 --autocast

It is plain PyTorch. Options switch on what the lessons teach. The tokens are zeros:
memory does not depend on them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

VOCABULARY, LENGTH, HIDDEN, HEADS, LAYERS = 50304, 1024, 768, 12, 12


class Block(nn.Module):
    """A transformer layer: attention and an MLP, each with a residual connection.

    Args:
        fused: whether attention runs as one kernel; otherwise its scores are stored.
    """

    def __init__(self, *, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.norm_1, self.norm_2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.query_key_value = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.projection = nn.Linear(HIDDEN, HIDDEN)
        self.mlp = nn.Sequential(
            nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output, as large as its input."""
        x = x + self.projection(self._attention(self.norm_1(x)))
        residual: Tensor = x + self.mlp(self.norm_2(x))
        return residual

    def _attention(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            part.view(batch, length, HEADS, -1).transpose(1, 2)
            for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        if self.fused:
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
        return mixed.transpose(1, 2).reshape(batch, length, HIDDEN)


class GPT(nn.Module):
    """GPT-2 small; the last layer shares its weight with the token embedding.

    Args:
        fused: as in `Block`.
        checkpointed: whether layers are recomputed in the backward pass.
    """

    def __init__(self, *, fused: bool, checkpointed: bool) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(LENGTH, HIDDEN)
        self.blocks = nn.ModuleList(Block(fused=fused) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device="cuda"))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        logits = linear(self.norm(x), self.tokens.weight)
        return cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def main(words: Sequence[str] | None = None) -> None:
    """Train for a few steps.

    Args:
        words: options of the command line; None: those of this process.
    """
    options = _parse(words)
    model = GPT(fused=options.fused_attention, checkpointed=options.checkpoint).cuda()
    if options.optimizer == "adafactor":
        optimizer: torch.optim.Optimizer = torch.optim.Adafactor(model.parameters())
    else:
        fused = options.optimizer == "fused" or None
        optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    micro_batch = options.batch_size // options.accumulate
    for _ in range(options.steps):
        for _ in range(options.accumulate):
            tokens = torch.zeros(micro_batch, options.length, dtype=torch.long).cuda()
            with torch.autocast("cuda", torch.bfloat16, enabled=options.autocast):
                loss = model(tokens, tokens) / options.accumulate
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="minigpt", description="Train GPT-2 small on zeros.")
    parser.add_argument("--batch-size", type=int, default=8, metavar="N", help="texts of a step")
    parser.add_argument("--length", type=int, default=LENGTH, metavar="N", help="tokens of a text")
    parser.add_argument(
        "--accumulate", type=int, default=1, metavar="N", help="micro-batches of a step"
    )
    parser.add_argument("--steps", type=int, default=2, metavar="N", help="training steps")
    parser.add_argument("--fused-attention", action="store_true", help="do not store scores")
    parser.add_argument("--checkpoint", action="store_true", help="recompute the layers")
    parser.add_argument("--autocast", action="store_true", help="compute in bfloat16")
    parser.add_argument(
        "--optimizer", choices=("adamw", "fused", "adafactor"), default="adamw", help="optimizer"
    )
    options = parser.parse_args(words)
    if options.batch_size % options.accumulate:
        parser.error(
            f"--batch-size {options.batch_size} is not divisible by --accumulate "
            f"{options.accumulate}: choose a divisor"
        )
    return options


if __name__ == "__main__":
    main()
