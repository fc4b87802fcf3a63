"""Two small transformers that take part in simulations: one like GPT-2 and one like Llama."""

from __future__ import annotations

from vramlab.planner.models import llama_sizes
from vramlab.programs.transformer_memory import Sizes

GPT = Sizes(vocabulary=2048, positions=512, width=512, layers=4, heads=8)
LLAMA = llama_sizes(
    vocabulary=2048, width=512, layers=4, heads=8, feed_forward=1024, kv_heads=4, positions=512
)
