"""A GPT-2 of 124 million parameters and its training loop: a script to practice on.

    vramlab run -m vramlab_course.programs.minigpt --batch-size 8 --autocast

It is plain PyTorch. Options switch on what the lessons teach. The tokens are zeros:
memory does not depend on them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

VOCABULARY, LENGTH, HIDDEN, HEADS, LAYERS = 50304, 1024, 768, 12, 12


class Adapted(nn.Linear):
    """A linear layer with a LoRA adapter.

    Args:
        inputs: columns of the layer's input.
        outputs: columns of its output.
        rank: of the adapter.
    """

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__(inputs, outputs)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the layer and the adapter add up to."""
        adapted: Tensor = super().forward(x) + self.up(self.down(x))
        return adapted


class Block(nn.Module):
    """A transformer layer: attention and an MLP, each with a residual connection.

    Args:
        fused: whether attention runs as one kernel; otherwise its scores are stored.
        lora: rank of the adapters of attention's linear layers; 0: none.
    """

    def __init__(self, *, fused: bool, lora: int) -> None:
        super().__init__()
        self.fused = fused
        self.norm_1, self.norm_2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        layer = partial(Adapted, rank=lora) if lora else nn.Linear
        self.query_key_value = layer(HIDDEN, 3 * HIDDEN)
        self.projection = layer(HIDDEN, HIDDEN)
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
        loss_pieces: how many parts of the logits are computed one after the other.
        lora: as in `Block`; with adapters, all else is frozen.
    """

    def __init__(self, *, fused: bool, checkpointed: bool, loss_pieces: int, lora: int) -> None:
        super().__init__()
        self.checkpointed, self.loss_pieces = checkpointed, loss_pieces
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(LENGTH, HIDDEN)
        self.blocks = nn.ModuleList(Block(fused=fused, lora=lora) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(not lora or ".down." in name or ".up." in name)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device="cuda"))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        x, targets = self.norm(x).view(-1, HIDDEN), targets.view(-1)
        if self.loss_pieces == 1:
            return self._loss(x, targets)
        losses = [
            checkpoint(self._loss, *piece, use_reentrant=False)
            for piece in zip(
                x.chunk(self.loss_pieces), targets.chunk(self.loss_pieces), strict=True
            )
        ]
        return torch.stack(losses).mean()

    def _loss(self, x: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(linear(x, self.tokens.weight), targets)


def main(words: Sequence[str] | None = None) -> None:
    """Train for a few steps.

    Args:
        words: options of the command line; None: those of this process.
    """
    options = _parse(words)
    model = GPT(
        fused=options.fused_attention,
        checkpointed=options.checkpoint,
        loss_pieces=options.loss_pieces,
        lora=options.lora,
    ).cuda()
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if options.optimizer == "adafactor":
        optimizer: torch.optim.Optimizer = torch.optim.Adafactor(learned)
    else:
        fused = options.optimizer == "fused" or None
        optimizer = torch.optim.AdamW(learned, fused=fused)
    micro_batch = options.batch_size // options.accumulate
    for _ in range(options.steps):
        for _ in range(options.accumulate):
            tokens = torch.zeros(micro_batch, options.length, dtype=torch.long).cuda()
            with (
                save_on_cpu(pin_memory=True) if options.offload else nullcontext(),
                torch.autocast("cuda", torch.bfloat16, enabled=options.autocast),
            ):
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
    parser.add_argument("--offload", action="store_true", help="keep saved tensors on the host")
    parser.add_argument("--lora", type=int, default=0, metavar="R", help="rank of LoRA adapters")
    parser.add_argument(
        "--loss-pieces", type=int, default=1, metavar="N", help="compute the logits in N parts"
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
