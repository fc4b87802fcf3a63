"""Lesson 25: the loss of a long text, and attention over a text that ranks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vramlab import VirtualGPU, catalogue
from vramlab.cuda_rules.sizes import block_bytes
from vramlab.measure import Timeline, record_collectives, record_sends, record_timeline
from vramlab.measure.counters import held_bytes, unsplit_remainder_bytes
from vramlab.planner.models import llama_sizes
from vramlab.programs.alone import alone
from vramlab.programs.transformer import Transformer
from vramlab.programs.transformer_memory import Sizes
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l25_long_context.chunked_loss import (
    chunked_loss,
    transformers_loss,
    whole_loss,
)
from vramlab_course.lessons.l25_long_context.context_parallel import (
    ring_attention,
    ulysses_attention,
)
from vramlab_course.lessons.l25_long_context.formulas import least_block, logits_bytes
from vramlab_course.programs.ranks import refuse_real_gpu
from vramlab_course.rules import RULES

LLAMA_8B = llama_sizes(128_256, 4096, 32, 32, 14_336, 8)
"""Source: arXiv 2407.21783 (Llama 3), table 3."""
TOKENS = 131_072

ROOMY = replace(catalogue.find("A100-80GB"), total_bytes=2**50, nvml_total_bytes=2**51)
"""What does not fit a GPU is measured, too."""

WAYS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "ring": ring_attention,
    "Ulysses": ulysses_attention,
}


def record_long_step(layers: int, tokens: int) -> Timeline:
    """Record forward and backward of Llama 3.1 8B with few layers, all recomputed, in bfloat16."""
    sizes = replace(LLAMA_8B, layers=layers)
    with VirtualGPU(ROOMY, torch_version=RULES):
        with torch.device("cuda"):
            model = Transformer(sizes, attention="flash", dropout=0.0, checkpointing="full").to(
                torch.bfloat16
            )
            text = torch.zeros(1, tokens, dtype=torch.long)
        with record_timeline() as recording:
            recording.watch(model=model, inputs=text)
            recording.stage("forward")
            loss = model(text, text)
            recording.stage("backward")
            loss.backward()
        return recording.timeline


# ---- The loss ----


@dataclass(frozen=True)
class LossMemory:
    """What the loss takes beyond the last layer's output, the head and the targets."""

    kept_bytes: int
    forward_peak_bytes: int
    peak_bytes: int
    """The most at any moment; gradients of output and head are in it."""


def measure_loss(
    tokens: int, pieces: int = 0, sizes: Sizes = LLAMA_8B, *, transformers: bool = False
) -> LossMemory:
    """Measure the loss of a sequence in bfloat16, on a GPU with plenty of memory.

    Args:
        tokens: length of the sequence.
        pieces: into which the loss is cut; 0 for the whole.
        sizes: of the model.
        transformers: measure the loss of transformers' models instead of our own.

    Raises:
        ValueError: transformers' loss is not cut into pieces.
    """
    if transformers and pieces:
        raise ValueError(f"transformers' loss has no pieces, not {pieces}; leave pieces at 0")
    with VirtualGPU(ROOMY, torch_version=RULES):
        hidden, head = (
            torch.zeros(rows, sizes.width, dtype=torch.bfloat16, device="cuda", requires_grad=True)
            for rows in (tokens, sizes.vocabulary)
        )
        targets = torch.zeros(tokens, dtype=torch.long, device="cuda")
        _meet_cublas()
        before_bytes = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        logits = None
        if transformers:
            loss, logits = transformers_loss(hidden, head, targets)
        elif pieces:
            loss = chunked_loss(hidden, head, targets, pieces)
        else:
            loss = whole_loss(hidden, head, targets)
        kept_bytes = torch.cuda.memory_allocated() - before_bytes
        forward_bytes = torch.cuda.max_memory_allocated() - before_bytes
        loss.backward()
        peak_bytes = torch.cuda.max_memory_allocated() - before_bytes
        del logits  # a model's output holds them until here
    return LossMemory(kept_bytes, forward_bytes, peak_bytes)


def _meet_cublas() -> None:
    """Have the workspaces of forward and backward."""
    small = torch.zeros(8, 8, device="cuda", requires_grad=True)
    (small @ small).sum().backward()


@experiment(
    "long-loss",
    lesson="25",
    question="What does the loss of a long text take, as it is written?",
    source="arXiv 2407.21783, table 3",
    conditions=Conditions(gpu="A100-80GB", why="what tensors take is the same on every GPU"),
)
def long_loss(tokens: int = 16_384) -> Outcome:
    """Run the head and the loss of one text: logits, their logarithms, and both at the peak."""
    trial = Trial("long-loss", tokens=tokens)
    width, vocabulary = LLAMA_8B.width, LLAMA_8B.vocabulary
    hidden, head = (
        torch.zeros(rows, width, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        for rows in (tokens, vocabulary)
    )
    targets = torch.zeros(tokens, dtype=torch.long, device="cuda")
    _meet_cublas()
    logits = block_bytes(logits_bytes(tokens, vocabulary))
    two_numbers = 2 * block_bytes(4)  # the loss, and the sum of the weights that it is divided by
    before_bytes = unsplit_remainder_bytes()
    with trial.stage("loss, as it is written") as stage:
        loss = whole_loss(hidden, head, targets)
    # The logarithms are kept, the logits are not.
    remainder_bytes = unsplit_remainder_bytes() - before_bytes
    stage.expect(expected("growth", logits + two_numbers + remainder_bytes))
    del loss
    return trial.outcome()


# ---- Attention over a text that ranks share ----


@dataclass(frozen=True)
class SharedAttention:
    """One rank's attention over its part of a text, in bfloat16."""

    block_bytes: int
    """Query, key or value of its part."""
    kept_bytes: int
    """What forward leaves behind, the output included."""
    forward_peak_bytes: int
    peak_bytes: int
    sent_bytes: int
    """Forward."""
    sent_backward_bytes: int


def measure_shared(
    way: str, ranks: int, tokens: int = TOKENS, heads: int = 32, head_size: int = 128
) -> SharedAttention:
    """Measure rank 0 of so many, without the others, on the attached virtual GPU.

    Raises:
        NeedsMoreGPUs: the attached GPU is a real one, where the others would be waited for.
    """
    refuse_real_gpu("--nproc-per-node=8 of a program of your own")
    shape = 1, heads, tokens // ranks, head_size
    with alone(ranks):
        parts = [
            torch.zeros(shape, dtype=torch.bfloat16, device="cuda", requires_grad=True)
            for _ in range(3)
        ]
        before_bytes = held_bytes()
        torch.cuda.reset_peak_memory_stats()
        with record_sends() as sends, record_collectives() as collectives:
            output = WAYS[way](*parts)
        kept_bytes = held_bytes() - before_bytes
        forward_bytes = torch.cuda.max_memory_allocated() - before_bytes
        forward_sent = sends.sent_bytes + collectives.sent_bytes
        gradient = torch.zeros_like(output)
        with record_sends() as sends, record_collectives() as collectives:
            output.backward(gradient)
        peak_bytes = torch.cuda.max_memory_allocated() - before_bytes - gradient.nbytes
        return SharedAttention(
            parts[0].nbytes,
            kept_bytes,
            forward_bytes,
            peak_bytes,
            forward_sent,
            sends.sent_bytes + collectives.sent_bytes,
        )


@experiment(
    "shared-attention",
    lesson="25",
    question="What does a rank keep of attention over a text that eight share?",
    source="arXiv 2310.01889 §3, arXiv 2309.14509 §3",
    conditions=Conditions(gpu="A100-80GB", why="what tensors take is the same on every GPU"),
)
def shared_attention(ranks: int = 8, tokens: int = TOKENS) -> Outcome:
    """Attend on one rank of eight, both ways, 32 heads of 128 in bfloat16."""
    trial = Trial("shared-attention", ranks=ranks, tokens=tokens)
    heads, head_size = 32, 128
    part = tokens // ranks
    block = block_bytes(2 * heads * part * head_size)
    sums = block_bytes(4 * heads * part)  # a logarithm for each query and head: the same both ways
    # Ulysses also saves its copies of query, key and value, and the output before it is sent; and
    # flash attention's seed and offset.
    kept_bytes = {"ring": block + sums, "Ulysses": 5 * block + sums + 2 * block_bytes(8)}
    with alone(ranks):
        query, key, value = (
            torch.zeros(
                1, heads, part, head_size, dtype=torch.bfloat16, device="cuda", requires_grad=True
            )
            for _ in range(3)
        )
        for way, attend in WAYS.items():
            before_bytes = unsplit_remainder_bytes()
            with trial.stage(way) as stage:
                output = attend(query, key, value)
            remainder_bytes = unsplit_remainder_bytes() - before_bytes
            stage.expect(expected("growth", kept_bytes[way] + remainder_bytes))
            del output
            torch.cuda.empty_cache()
    return trial.outcome()


RING_HOSTS = {
    "A100, NVLink": (312e12, 300e9),
    "A100, InfiniBand": (312e12, 12.5e9),
    "TPU v3": (123e12, 112e9),
    "TPU v4": (275e12, 268e9),
    "TPU v5e": (196e12, 186e9),
}
"""FLOPs and bytes a second. Source: arXiv 2310.01889, table 2."""


@experiment(
    "ring-blocks",
    lesson="25",
    question="From which block size on does a ring never wait?",
    source="arXiv 2310.01889, table 2",
    figures=("ring-blocks", "ring-parts"),
    conditions=Conditions(why="it is computed from FLOPs and bandwidth"),
)
def ring_blocks() -> Outcome:
    """Divide FLOPs by bandwidth, in thousands of tokens; a rank has six such blocks at least."""
    trial = Trial("ring-blocks")
    for index, (host, (flops, bandwidth)) in enumerate(RING_HOSTS.items()):
        block = least_block(flops, bandwidth) / 1000
        for name, found in (("ring-blocks", block), ("ring-parts", 6 * block)):
            off = found - float(figure(name).number(index))
            why = "312 / 12.5 is 24.96; the printed 24.5, and six times that, are not"
            differences = [Difference(off, why, "arXiv 2310.01889, table 2")]
            trial.find(
                name,
                found,
                index=index,
                part=host,
                differences=differences if host == "A100, InfiniBand" else (),
            )
    return trial.outcome()
