"""Two small transformers that take part in simulations: one like GPT-2 and one like Llama."""

from __future__ import annotations

from dataclasses import replace

from vramlab.formulas.transformer import Sizes

GPT = Sizes(vocabulary=2048, positions=512, width=512, layers=4, heads=8)
LLAMA = replace(
    GPT,
    kv_heads=4,
    feed_forward=1024,
    activation="swiglu",
    norm="rms",
    bias=False,
    tied=False,
    learned_positions=False,
    rotary=True,
)
