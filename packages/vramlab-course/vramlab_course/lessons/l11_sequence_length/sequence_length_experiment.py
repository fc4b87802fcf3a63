"""Lesson 11: BERT's memory over the length of its text, and what each kind of attention keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab.units import MIB
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.bert import Bert
from vramlab_course.lessons.l11_sequence_length.attention_formulas import (
    KINDS,
    AttentionKind,
    bert_held_bytes,
    kept_bytes,
    quadratic_bytes,
)
from vramlab_course.lessons.l11_sequence_length.fit_formulas import quadratic_fit
from vramlab_course.programs.unfilled import UnfilledWeights

LONGEST = 2560
"""Tokens that document 001's BERT has positions for."""

LENGTHS = tuple(range(128, LONGEST + 1, 128))

_BACKENDS: Mapping[str, SDPBackend] = {
    "math": SDPBackend.MATH,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
}


def long_bert(attention: str = "eager") -> nn.Module:
    """Make BERT-base with 2560 positions, in train mode; on the host, with `UnfilledWeights`.

    Args:
        attention: "eager" or "sdpa", as transformers calls it.
    """
    from transformers import BertConfig, BertModel

    config = BertConfig.from_dict(
        {"attn_implementation": attention, "max_position_embeddings": LONGEST}
    )
    with UnfilledWeights():
        model: nn.Module = BertModel(config)
    return model


@experiment(
    "bert-sequence-fit",
    lesson="11",
    question="How does BERT's memory grow with the length of its text?",
    source="001 §2.44",
    figures=("bert-sequence-fit",),
    conditions=Conditions(
        why="the term in s^2 needs dropout's mask and result: the model was in train mode. The "
        "lengths are not printed"
    ),
)
def bert_sequence_fit(
    lengths: Sequence[int] = LENGTHS, training: bool = True, fused: bool = False
) -> Outcome:
    """Run one forward pass at each length, batch 1, in float32; a parabola through all.

    What is allocated is predicted to the byte at each length. Only unsplit
    remainders, of at most 1 MiB, are read from torch's snapshot: they depend on everything that
    was allocated before.

    Args:
        lengths: of the text. Which ones the document ran is not known, and they decide the digits
            of b and c. 10,955 ranges were tried, with an empty cache before each length (starts of
            1 to 512, steps of 10 to 320, ends of 2000 to 2560): 4,018 give the published a, and
            those have b from 0.577 to 0.630 and c from 419 to 464 MiB. The published b and c lie
            in the middle of both, but no range gives all three, with allocated memory or with its
            peak. Reserved memory never gives a and b together.
        training: train() or eval().
        fused: attention by PyTorch's scaled_dot_product_attention, which is memory-efficient in
            float32; else step by step, as the document had it.
    """
    trial = Trial("bert-sequence-fit", lengths=list(lengths), training=training, fused=fused)
    sizes = Bert(positions=LONGEST)
    workspace_bytes = trial.environment.linear_workspace_bytes()
    model = long_bert("sdpa" if fused else "eager").train(training).to("cuda")

    def closed_bytes(length: int) -> int:
        return bert_held_bytes(sizes, 1, length, training, fused) + workspace_bytes

    allocated: list[tuple[int, int]] = []
    for length in lengths:
        torch.cuda.empty_cache()
        with trial.stage(f"{length} tokens") as stage:
            tokens = torch.zeros((1, length), dtype=torch.long).to("cuda")
            outputs = model(tokens)
        stage.expect(expected("allocated", closed_bytes(length) + unsplit_remainder_bytes()))
        allocated.append((length, stage.measurement.allocated_after_bytes))
        del tokens, outputs
    square, linear, constant = quadratic_fit(allocated)
    _, linear_closed, constant_closed = quadratic_fit(
        (length, closed_bytes(length)) for length in lengths
    )
    coefficient = 0 if fused else quadratic_bytes(sizes.layers, sizes.heads, dropout=training)
    for index, (part, measured, closed) in enumerate(
        (
            ("a, for each squared token", square / MIB, coefficient / MIB),
            ("b, for each token", linear / MIB, linear_closed / MIB),
            ("c", round(constant), round(constant_closed)),
        )
    ):
        trial.find(
            "bert-sequence-fit",
            measured,
            predicted=closed,
            index=index,
            part=part,
            note="which lengths were run is not printed, and b and c depend on them, by unsplit "
            "remainders that differ from length to length; the prediction is without them",
        )
    return trial.outcome()


# ---- Kinds of attention ----


@dataclass(frozen=True)
class AttentionMemory:
    """What one attention took, between query, key and value and the gradients of all three."""

    kept_bytes: int
    """After the forward pass, its output included."""
    forward_peak_bytes: int
    """Most at a time in the forward pass, beyond query, key and value."""
    backward_peak_bytes: int
    """Most that is allocated in the backward pass, gradients included."""


def attend(
    kind: AttentionKind, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0
) -> Tensor:
    """Attend from every query to every key: all (B, H, S, D).

    Args:
        kind: one after the other as ordinary ops, or a backend of PyTorch's.
        query, key, value: (B, H, S, D).
        dropout: probability that a weight is dropped.

    Raises:
        RuntimeError: this GPU has no such kernel for this dtype; torch's words.
    """
    if kind == "step by step":
        scores = query @ key.transpose(-2, -1)
        weights = (scores * query.size(-1) ** -0.5).softmax(-1)
        return functional.dropout(weights, dropout, training=dropout > 0) @ value
    with sdpa_kernel(_BACKENDS[kind]):
        return functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout)


def measure_attention(
    kind: AttentionKind,
    length: int,
    *,
    batch: int = 1,
    heads: int = 12,
    head_size: int = 64,
    dtype: torch.dtype = torch.float16,
    dropout: float = 0.0,
    training: bool = True,
) -> AttentionMemory:
    """Run attention forward and, in training, backward on the current GPU, and read its memory.

    cuBLAS's workspaces are there before, as in a program that has computed something else.
    """
    _meet_cublas()
    query, key, value = (
        torch.zeros(
            batch, heads, length, head_size, dtype=dtype, device="cuda", requires_grad=training
        )
        for _ in range(3)
    )
    before_bytes = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with nullcontext() if training else torch.no_grad():
        output = attend(kind, query, key, value, dropout if training else 0.0)
    kept = torch.cuda.memory_allocated() - before_bytes
    forward_peak = torch.cuda.max_memory_allocated() - before_bytes
    torch.cuda.reset_peak_memory_stats()
    if training:
        output.backward(torch.zeros_like(output))
    backward_peak = torch.cuda.max_memory_allocated() - before_bytes if training else 0
    return AttentionMemory(kept, forward_peak, backward_peak)


def _meet_cublas() -> None:
    """Have the workspaces of both threads, forward and backward."""
    small = torch.zeros(1, 8, 8, device="cuda", requires_grad=True)
    (small @ small).sum().backward()


def can_run(kind: AttentionKind, dtype: torch.dtype, training: bool, dropout: float) -> bool:
    """Return whether the attached GPU has a kernel for it: asked with a few tokens."""
    query = torch.zeros(1, 1, 64, 64, dtype=dtype, device="cuda", requires_grad=training)
    try:
        attend(kind, query, query, query, dropout)
    except RuntimeError:
        return False
    return True


def chosen_by_torch(dtype: torch.dtype, dropout: float = 0.0, head_size: int = 64) -> AttentionKind:
    """Return which kind scaled_dot_product_attention takes on the attached GPU, without a mask.

    Told from the graph: the node that the output comes from is named after the backend.
    """
    query = torch.zeros(1, 1, 64, head_size, dtype=dtype, device="cuda", requires_grad=True)
    output = functional.scaled_dot_product_attention(query, query, query, dropout_p=dropout)
    assert output.grad_fn is not None  # the query requires a gradient
    node = output.grad_fn.name()
    return next((kind for kind, word in _NODE_WORDS.items() if word in node), "math")


_NODE_WORDS: Mapping[AttentionKind, str] = {
    "flash": "FlashAttention",
    "memory-efficient": "EfficientAttention",
    "cuDNN": "CudnnAttention",
}


@experiment(
    "attention-kinds",
    lesson="11",
    question="What does each kind of attention keep for the backward pass?",
    source="001 §3.2",
    conditions=Conditions(why="a GPU that has all of the kernels"),
)
def attention_kinds(length: int = 2048, batch: int = 1, heads: int = 12) -> Outcome:
    """Attend in float16, as many heads as in a layer of BERT-base; forward, each way.

    With dropout of 0.1, and without. A kind that the attached GPU has no kernel for is left out.
    """
    trial = Trial("attention-kinds", length=length, batch=batch, heads=heads)
    head_size = 64
    for dropout in (0.0, 0.1):
        for kind in KINDS:
            torch.cuda.empty_cache()
            _meet_cublas()
            if not can_run(kind, torch.float16, training=True, dropout=dropout):
                continue
            query, key, value = (
                torch.zeros(
                    batch,
                    heads,
                    length,
                    head_size,
                    dtype=torch.float16,
                    device="cuda",
                    requires_grad=True,
                )
                for _ in range(3)
            )
            kept = kept_bytes(kind, batch, heads, length, head_size, "float16", dropout > 0)
            words = "with dropout" if dropout else "no dropout"
            remainder_bytes = unsplit_remainder_bytes()
            with trial.stage(f"{kind}, {words}") as stage:
                output = attend(kind, query, key, value, dropout)
            stage.expect(expected("growth", kept + unsplit_remainder_bytes() - remainder_bytes))
            del query, key, value, output
    return trial.outcome()
