"""Imports what entries need, so that processes forked afterwards have it already. Uses no CUDA."""

import contextlib

import vramlab.recordings.measuring
import vramlab.zoo  # noqa: F401
from vramlab.recordings.experiments import all_experiments

all_experiments()

with contextlib.suppress(ImportError):
    import transformers

    for _name in (
        "BertForMaskedLM",
        "ConvNextForImageClassification",
        "GPT2LMHeadModel",
        "LlamaForCausalLM",
        "Qwen3ForCausalLM",
        "ResNetForImageClassification",
        "T5ForConditionalGeneration",
        "ViTForImageClassification",
    ):
        getattr(transformers, _name)
