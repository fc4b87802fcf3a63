"""What libraries' switches for checkpointing keep of BERT, and the FLOPs that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertLayer

import vramlab
from vramlab.measure import Table
from vramlab.units import MIB

BATCH, LENGTH = 32, 512

LIBRARIES: dict[str, Callable[[Any], object]] = {
    "nothing": lambda bert: None,
    "transformers: activation_checkpointing_enable": (
        lambda bert: bert.activation_checkpointing_enable({"use_reentrant": False})
    ),
    "torch: apply_activation_checkpointing": lambda bert: apply_activation_checkpointing(
        bert, check_fn=lambda module: isinstance(module, BertLayer)
    ),
}


def library_costs_table(useful_flops_per_s: float) -> Table:
    """Run a step of BERT-base with SDPA by each switch, each on a new A100.

    Args:
        useful_flops_per_s: what the GPU reaches, for the modelled texts per second.
    """
    return Table(
        f"A step of BERT-base, transformers {transformers.__version__}, torch {torch.__version__}",
        ("checkpoints by", "kept, MiB", "TFLOPs", "texts per second, modelled"),
        tuple((name, *_cost(prepare, useful_flops_per_s)) for name, prepare in LIBRARIES.items()),
    )


def _cost(prepare: Callable[[Any], object], useful_flops_per_s: float) -> tuple[str, str, str]:
    vramlab.attach("A100-40GB", quiet=True)
    config: Any = BertConfig(use_cache=False)
    config._attn_implementation = "sdpa"
    bert: Any = BertModel(config)
    bert.to("cuda").train()
    prepare(bert)
    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long, device="cuda")
    before_bytes = torch.cuda.memory_allocated()
    with FlopCounterMode(display=False) as counter:
        loss = bert(tokens).last_hidden_state.sum()
        kept_bytes = torch.cuda.memory_allocated() - before_bytes
        loss.backward()
    flops = counter.get_total_flops()
    texts = BATCH / (flops / useful_flops_per_s)
    return f"{kept_bytes / MIB:,.0f}", f"{flops / 1e12:.1f}", f"{texts:,.0f}"
