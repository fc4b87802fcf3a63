"""The workloads: an explicit list, because a full cross product says little more.

Sizes are chosen so that each takes seconds on a large GPU and fits into 80 GiB. A workload's id
follows from its line; a line that changes is another workload, and needs recording.
"""

from __future__ import annotations

from typing import Any

from vramlab.errors import VramlabError
from vramlab.zoo.workload import Workload


class UnknownWorkloadError(VramlabError, KeyError):
    """No workload has that id."""

    def __str__(self) -> str:
        return str(self.args[0])


def _variants(common: dict[str, Any], *differences: dict[str, Any]) -> list[Workload]:
    return [Workload(**{**common, **each}) for each in differences]


WORKLOADS: tuple[Workload, ...] = (
    # Multilayer perceptrons: every optimizer and precision on few ops.
    *_variants(
        {"model": "mlp-1024x4", "batch": 256},
        {"optimizer": "sgd"},
        {"optimizer": "momentum"},
        {"optimizer": "adamw"},
        {"optimizer": "adamw-loop"},
        {"optimizer": "adamw-fused"},
        {"optimizer": "adafactor"},
        {"precision": "autocast-fp16"},
        {"precision": "autocast-bf16"},
        {"precision": "bf16"},
        {"clipping": True},
        {"checkpointing": True},
        {"mode": "infer"},
        {"batch": 1},
        {"batch": 1023},
    ),
    *_variants(
        {"model": "mlp-4096x8", "batch": 4096},
        {"optimizer": "adamw-foreach"},
        {"optimizer": "adamw-fused", "precision": "autocast-bf16"},
        {"optimizer": "adamw-loop", "precision": "autocast-fp16", "clipping": True},
        {"optimizer": "momentum", "precision": "bf16"},
    ),
    # Convolutional networks.
    *_variants(
        {"model": "vgg16"},
        {"batch": 16, "optimizer": "sgd"},
        {"batch": 64, "optimizer": "momentum"},
        {"batch": 64, "optimizer": "momentum", "precision": "autocast-bf16"},
        {"batch": 32, "mode": "infer"},
    ),
    *_variants(
        {"model": "resnet50", "optimizer": "momentum"},
        {"batch": 32},
        {"batch": 128, "precision": "autocast-fp16"},
        {"batch": 64, "precision": "bf16"},
        {"batch": 64, "mode": "infer"},
    ),
    *_variants(
        {"model": "convnext-tiny"},
        {"batch": 32},
        {"batch": 64, "precision": "autocast-bf16", "optimizer": "adamw-fused"},
        {"batch": 32, "mode": "infer"},
    ),
    # Vision transformers.
    *_variants(
        {"model": "vit-base", "batch": 32},
        {"attention": "eager"},
        {"attention": "math"},
        {"attention": "efficient"},
        {"attention": "sdpa"},
        {"attention": "flash", "precision": "autocast-bf16", "batch": 64},
        {"attention": "flash", "precision": "bf16", "optimizer": "adamw-fused"},
        {"attention": "efficient", "checkpointing": True},
        {"attention": "efficient", "mode": "infer"},
    ),
    # A recurrent network.
    *_variants(
        {"model": "lstm", "batch": 32, "length": 128},
        {},
        {"precision": "autocast-fp16", "clipping": True},
        {"precision": "bf16", "optimizer": "sgd"},
        {"mode": "infer"},
    ),
    # Encoders.
    *_variants(
        {"model": "bert-base", "batch": 32, "length": 128},
        {"attention": "eager"},
        {"attention": "math"},
        {"attention": "efficient"},
        {"attention": "sdpa"},
        {"attention": "eager", "optimizer": "sgd"},
        {"attention": "eager", "optimizer": "adamw-loop"},
        {"attention": "eager", "optimizer": "adamw-fused"},
        {"attention": "eager", "optimizer": "adafactor"},
        {"attention": "eager", "precision": "autocast-fp16", "clipping": True},
        {"attention": "eager", "checkpointing": True},
        {"attention": "efficient", "precision": "autocast-fp16"},
        {"attention": "math", "precision": "autocast-bf16"},
        {"attention": "flash", "precision": "autocast-bf16"},
        {"attention": "flash", "precision": "bf16", "optimizer": "adamw-fused"},
        {"attention": "efficient", "batch": 7, "length": 509},
        {"attention": "eager", "batch": 8, "length": 512},
        {"attention": "flash", "batch": 32, "length": 512, "precision": "autocast-bf16"},
        {"attention": "eager", "mode": "infer"},
        {"attention": "sdpa", "mode": "infer", "precision": "autocast-bf16"},
    ),
    *_variants(
        {"model": "bert-large", "batch": 8, "length": 512},
        {"attention": "eager"},
        {"attention": "efficient", "optimizer": "adafactor"},
        {"attention": "flash", "precision": "autocast-bf16", "optimizer": "adamw-fused"},
        {"attention": "efficient", "checkpointing": True, "batch": 16},
        {"attention": "sdpa", "mode": "infer"},
    ),
    # Encoder and decoder.
    *_variants(
        {"model": "t5-small", "batch": 16, "length": 512, "attention": "eager"},
        {"optimizer": "adafactor"},
        {"precision": "autocast-bf16"},
        {"checkpointing": True},
    ),
    *_variants(
        {"model": "t5-base", "batch": 8, "length": 256, "attention": "eager"},
        {"optimizer": "adafactor", "precision": "bf16"},
        {"optimizer": "adamw"},
    ),
    # Decoders.
    *_variants(
        {"model": "gpt2", "batch": 8, "length": 1024},
        {"attention": "eager"},
        {"attention": "math", "batch": 4},
        {"attention": "efficient"},
        {"attention": "sdpa"},
        {"attention": "flash", "precision": "autocast-bf16"},
        {"attention": "efficient", "precision": "autocast-fp16", "clipping": True},
        {"attention": "flash", "precision": "bf16", "optimizer": "adamw-fused"},
        {"attention": "efficient", "checkpointing": True},
        {"attention": "efficient", "batch": 3, "length": 777, "optimizer": "momentum"},
        {"attention": "sdpa", "mode": "infer"},
        {"attention": "eager", "mode": "generate", "length": 512},
        {"attention": "sdpa", "mode": "generate", "length": 512, "precision": "bf16"},
    ),
    *_variants(
        {"model": "gpt2-xl", "length": 1024},
        {"batch": 1, "attention": "eager", "optimizer": "sgd"},
        {"batch": 2, "attention": "flash", "precision": "bf16", "optimizer": "adamw-fused"},
        {"batch": 4, "attention": "flash", "precision": "autocast-bf16", "checkpointing": True},
        {"batch": 4, "length": 512, "attention": "sdpa", "precision": "bf16", "mode": "generate"},
    ),
    *_variants(
        {"model": "llama-1b", "batch": 2, "length": 2048},
        {"attention": "flash", "precision": "bf16", "optimizer": "adamw-fused"},
        {"attention": "flash", "precision": "bf16", "checkpointing": True, "batch": 4},
        {"attention": "flash", "precision": "autocast-bf16", "clipping": True},
        {"attention": "sdpa", "optimizer": "adafactor", "batch": 1},
        {"attention": "eager", "precision": "bf16", "optimizer": "sgd", "batch": 1},
        {"attention": "sdpa", "precision": "bf16", "mode": "generate", "batch": 8, "length": 512},
    ),
    *_variants(
        {"model": "qwen-0.6b", "batch": 2, "length": 1024},
        {"attention": "flash", "precision": "bf16", "optimizer": "adamw-foreach"},
        {"attention": "math", "precision": "fp32"},
        {"attention": "sdpa", "precision": "autocast-bf16", "checkpointing": True},
        {"attention": "sdpa", "precision": "bf16", "mode": "generate", "batch": 8, "length": 512},
    ),
)
"""Every workload, in the order in which they are run."""


def find(workload_id: str) -> Workload:
    """Find the workload of an id.

    Raises:
        UnknownWorkloadError: there is none.
    """
    for workload in WORKLOADS:
        if workload.id == workload_id:
            return workload
    raise UnknownWorkloadError(
        f"no workload {workload_id!r} in the zoo; `vramlab record --list` lists them"
    )
