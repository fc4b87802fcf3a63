"""Lesson 26: what mixtures of experts hold: parameters, activations, on one GPU and on many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab.programs.alone import alone, refuse_real_gpu
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l26_mixture_of_experts.formulas import (
    MoELayer,
    expert_parameters,
    layer_parameters,
    unused_parameters,
)
from vramlab_course.lessons.l26_mixture_of_experts.moe import ExpertParallelMoE, MoE, crowd, spread

MIXTRAL = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
"""Source: arXiv 2401.04088 table 1."""


def mixtral() -> nn.Module:
    """Make Mixtral 8x7B in bfloat16 from its configuration, on the attached GPU."""
    from transformers import MixtralConfig, MixtralForCausalLM

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model: nn.Module = MixtralForCausalLM(MixtralConfig.from_dict(MIXTRAL))
    finally:
        torch.set_default_dtype(before)
    return model


def mixtral_parameters() -> int:
    """Add up Mixtral's parameters by hand: embedding and head, attention, norms, experts."""
    width, layers = MIXTRAL["hidden_size"], MIXTRAL["num_hidden_layers"]
    kv = width * MIXTRAL["num_key_value_heads"] // MIXTRAL["num_attention_heads"]
    attention = 2 * width * width + 2 * width * kv
    experts = layer_parameters(
        width, MIXTRAL["intermediate_size"], MIXTRAL["num_local_experts"], matrices=3
    )
    ends = 2 * MIXTRAL["vocab_size"] * width + width
    return ends + layers * (attention + 2 * width + experts)


def mixtral_unused() -> int:
    """Count those that a token does not go through."""
    return unused_parameters(
        MIXTRAL["num_hidden_layers"],
        MIXTRAL["hidden_size"],
        MIXTRAL["intermediate_size"],
        MIXTRAL["num_local_experts"],
        MIXTRAL["num_experts_per_tok"],
        matrices=3,
    )


@experiment(
    "mixtral-parameters",
    lesson="26",
    question="How many parameters has Mixtral 8x7B, and through how many does a token go?",
    source="arXiv 2401.04088 abstract and table 1",
    figures=("mixtral-parameters",),
    conditions=Conditions(gpu="H200", why="its parameters fit there; they are the same anywhere"),
)
def count_mixtral() -> Outcome:
    """Make the model, and count."""
    trial = Trial("mixtral-parameters")
    with trial.stage("parameters") as stage:
        model = mixtral()
    total = sum(parameter.numel() for parameter in model.parameters())
    buffers_bytes = sum(-(-buffer.nbytes // 512) * 512 for buffer in model.buffers())
    # No tensor is so small, or so large, that a block has more than its bytes.
    stage.expect(expected("growth", 2 * mixtral_parameters() + buffers_bytes))
    by_hand = mixtral_parameters()
    trial.find(
        "mixtral-parameters", total / 1e9, predicted=by_hand / 1e9, index=0, part="all of them"
    )
    trial.find(
        "mixtral-parameters",
        (total - mixtral_unused()) / 1e9,
        predicted=(by_hand - mixtral_unused()) / 1e9,
        index=1,
        part="of a token",
    )
    return trial.outcome()


@dataclass(frozen=True)
class Switch:
    """A model of table 9 of arXiv 2101.03961: an encoder and a decoder, as deep as each other."""

    name: str
    width: int
    inner: int
    gated: bool
    heads: int
    head_size: int
    layers: int
    """Of the encoder, and again of the decoder."""
    experts: int
    every: int
    """Each so-manyeth feed-forward layer has experts."""

    def parameters(self) -> int:
        """Count them: T5's have no biases; embedding and head are apart (T5 1.1)."""
        matrices = 3 if self.gated else 2
        sparse = 2 * self.layers // self.every
        dense = 2 * self.layers - sparse
        attention = 4 * self.width * self.heads * self.head_size
        return (
            sparse * layer_parameters(self.width, self.inner, self.experts, matrices)
            + dense * expert_parameters(self.width, self.inner, matrices)
            + 3 * self.layers * attention  # a decoder's layer has two
            + 2 * VOCABULARY * self.width
        )


VOCABULARY = 32128
"""T5's (google/t5-v1_1 configurations)."""
SWITCH = (
    Switch("Switch-Base", 768, 2048, True, 12, 64, 12, 128, 2),
    Switch("Switch-Large", 1024, 2816, True, 16, 64, 24, 128, 2),
    Switch("Switch-XXL", 4096, 10240, True, 64, 64, 24, 64, 2),
    Switch("Switch-C", 2080, 6144, False, 32, 64, 15, 2048, 1),
)


@experiment(
    "switch-parameters",
    lesson="26",
    question="Do the sizes of the Switch Transformers give the numbers of parameters beside them?",
    source="arXiv 2101.03961 table 9",
    figures=("switch-parameters",),
)
def count_switch() -> Outcome:
    """Make a layer of each kind without memory, count, and multiply."""
    trial = Trial("switch-parameters")
    large, xxl = SWITCH[1:3]
    released = replace(large, inner=4096, gated=False)
    twice = replace(xxl, experts=128)
    why = {
        large.name: Difference(
            (large.parameters() - released.parameters()) / 1e9,
            "the released model has no gate, and is 4096 wide inside",
            "huggingface.co/google/switch-large-128, config.json",
        ),
        xxl.name: Difference(
            (xxl.parameters() - twice.parameters()) / 1e9,
            "its number of parameters is that of 128 experts, not of the 64 in the same row",
            "huggingface.co/google/switch-xxl-128",
        ),
    }
    for index, model in enumerate(SWITCH):
        trial.find(
            "switch-parameters",
            counted(model) / 1e9,
            predicted=model.parameters() / 1e9,
            index=index,
            part=model.name,
            differences=[why[model.name]] if model.name in why else (),
        )
    return trial.outcome()


def counted(model: Switch) -> int:
    """Count what modules of a layer have, with one expert and with two, and multiply."""
    with torch.device("meta"):
        wide = model.heads * model.head_size
        attention = [nn.Linear(model.width, wide, bias=False) for _ in range(3)]
        attention.append(nn.Linear(wide, model.width, bias=False))
        expert = [nn.Linear(model.width, model.inner, bias=False) for _ in range(1 + model.gated)]
        expert.append(nn.Linear(model.inner, model.width, bias=False))
        router = nn.Linear(model.width, model.experts, bias=False)
        embedding = nn.Embedding(VOCABULARY, model.width)
    sparse = 2 * model.layers // model.every
    experts = sparse * model.experts + 2 * model.layers - sparse
    return (
        3 * model.layers * _numbers(attention)
        + experts * _numbers(expert)
        + sparse * _numbers([router])
        + 2 * _numbers([embedding])
    )


def _numbers(modules: Iterable[nn.Module]) -> int:
    return sum(part.numel() for module in modules for part in module.parameters())


def dense_growth_bytes(tokens: int, width: int, inner: int) -> int:
    """Measure what a dense feed-forward layer leaves allocated: its hidden tensors and output."""
    with torch.device("cuda"):
        layer = nn.Sequential(
            nn.Linear(width, inner, bias=False), nn.GELU(), nn.Linear(inner, width, bias=False)
        )
        x = torch.zeros(tokens, width, requires_grad=True)
    with torch.no_grad():
        layer(x)  # cuBLAS has its workspace from here on
    before_bytes = torch.cuda.memory_allocated()
    y = layer(x)
    growth_bytes = torch.cuda.memory_allocated() - before_bytes
    del y
    return growth_bytes


def layer_parts(tokens: int, width: int, inner: int, experts: int, top_k: int) -> dict[str, int]:
    """Return what a layer's forward pass leaves, by tensor; of a dense layer if `top_k` is 0.

    The dense layer is measured on the attached GPU; experts are counted, as "moe-layer" measures.
    """
    output_bytes = block_bytes(tensor_bytes((tokens, width), "float32"))
    if not top_k:
        return {
            "router": 0,
            "copies of tokens": 0,
            "hidden tensors": dense_growth_bytes(tokens, width, inner) - output_bytes,
            "outputs of experts, twice": 0,
            "output": output_bytes,
        }
    kept = MoELayer(tokens, width, inner, experts, top_k).kept()
    return {
        "router": kept["router"],
        "copies of tokens": kept["copies of tokens"],
        "hidden tensors": kept["hidden, before the activation"] + kept["hidden, after it"],
        "outputs of experts, twice": kept["outputs of experts"] + kept["the same, weighted"],
        "output": output_bytes,
    }


CROWD = 0.5
"""Share of the tokens that go to expert 0 in the experiments' crowd."""


@experiment(
    "moe-layer",
    lesson="26",
    question="What does a layer of experts keep for backward, and does it matter who goes where?",
    source="arXiv 2401.04088 §2.1",
)
def moe_layer(
    tokens: int = 4096, width: int = 1024, inner: int = 2048, experts: int = 8
) -> Outcome:
    """Run one expert that everybody goes to, then many of which each token goes to two.

    Args:
        tokens: batch times sequence.
        width: of the model.
        inner: of each expert.
        experts: how many there are.
    """
    trial = Trial("moe-layer", tokens=tokens, width=width, inner=inner, experts=experts)
    x = torch.zeros(tokens, width, device="cuda", requires_grad=True)
    cases = {
        "one expert for all": torch.zeros(tokens, 1, dtype=torch.int64),
        "spread evenly": spread(tokens, experts),
        "a crowd": crowd(tokens, experts, CROWD),
    }
    for name, chosen in cases.items():
        many = int(chosen.max()) + 1
        with torch.device("cuda"):
            layer = MoE(width, inner, many, chosen.shape[1])
        counts = tuple(chosen.flatten().bincount(minlength=many).tolist())
        sizes = MoELayer(tokens, width, inner, many, chosen.shape[1], counts)
        with torch.no_grad():
            layer(x, chosen)  # cuBLAS has its workspace from here on
        torch.cuda.empty_cache()
        before_bytes = unsplit_remainder_bytes()
        with trial.stage(name) as stage:
            y = layer(x, chosen)
        remainder_bytes = unsplit_remainder_bytes() - before_bytes
        stage.expect(expected("growth", sizes.growth_bytes + remainder_bytes))
        del layer, y
        torch.cuda.empty_cache()
    return trial.outcome()


@experiment(
    "expert-parallel",
    lesson="26",
    question="What does each rank hold if every rank has one expert, and a crowd goes to one?",
    source="arXiv 2101.03961 §5.4",
)
def expert_parallel(
    tokens: int = 4096, width: int = 1024, inner: int = 2048, ranks: int = 8
) -> Outcome:
    """Run a layer on rank 0 and on rank 1, each alone, with tokens spread evenly, and in a crowd.

    Args:
        tokens: of each rank.
        width: of the model.
        inner: of each expert.
        ranks: so many experts there are, and each token goes to two.
    """
    refuse_real_gpu("--nproc-per-node=2 -m vramlab_course.lessons.l26_mixture_of_experts.ranks")
    trial = Trial("expert-parallel", tokens=tokens, width=width, inner=inner, ranks=ranks)
    for name, chosen in {
        "spread": spread(tokens, ranks),
        "crowd": crowd(tokens, ranks, CROWD),
    }.items():
        counts = chosen.flatten().bincount(minlength=ranks).tolist()
        for rank in (0, 1):
            sizes = MoELayer(tokens, width, inner, ranks, 2)
            received = ranks * counts[rank]
            with alone(ranks, rank):
                with torch.device("cuda"):
                    layer = ExpertParallelMoE(width, inner, ranks)
                    x = torch.zeros(tokens, width, requires_grad=True)
                with torch.no_grad():
                    layer(x, chosen, [counts[rank]] * ranks)  # cuBLAS has its workspace then
                torch.cuda.empty_cache()
                before_bytes = unsplit_remainder_bytes()
                with trial.stage(f"{name}: rank {rank}") as stage:
                    y = layer(x, chosen, [counts[rank]] * ranks)
                remainder_bytes = unsplit_remainder_bytes() - before_bytes
                growth_bytes = sizes.rank_growth_bytes(received) + remainder_bytes
                stage.expect(expected("growth", growth_bytes))
                del layer, x, y
            torch.cuda.empty_cache()
    return trial.outcome()
