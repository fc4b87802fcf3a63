"""Lesson 11: retention (RetNet) in its parallel, recurrent and chunkwise form, and their memory.

Source: arXiv 2307.08621 §2.1, eq. 5 to 7. The three forms compute the same. Left out are the
rotation of query and key by their position (xPos) and the normalization of scores: neither changes
what is kept.

Letters of shapes: B batch, H heads, S sequence, D head size, C tokens in a chunk, W width.
"""

from __future__ import annotations

import torch

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l11_sequence_length import retention_formulas as formulas
from vramlab_course.lessons.l11_sequence_length.retention import (
    CHUNK,
    decays,
    retain_chunkwise,
    retain_parallel,
    retain_recurrent,
)


@experiment(
    "retention-forms",
    lesson="11",
    question="What do the three forms of retention keep?",
    source="001 §6",
    conditions=Conditions(why="what tensors take is the same on every GPU"),
)
def retention_forms(
    length: int = 1024, batch: int = 1, heads: int = 12, head_size: int = 64, chunk: int = CHUNK
) -> Outcome:
    """Attend in float32: what each form keeps for backward; and with a state that stays small."""
    trial = Trial(
        "retention-forms",
        length=length,
        batch=batch,
        heads=heads,
        head_size=head_size,
        chunk=chunk,
    )
    decay = decays(heads, "cuda")
    query, key, value = (
        torch.zeros(batch, heads, length, head_size, device="cuda", requires_grad=True)
        for _ in range(3)
    )
    with trial.stage("cuBLAS"):
        query[:, :, :1] @ key[:, :, :1].transpose(-2, -1)
    remainder_bytes = unsplit_remainder_bytes()
    kept = formulas.parallel_bytes(batch, heads, length, head_size)
    with trial.stage("parallel, training") as parallel:
        output = retain_parallel(query, key, value, decay)
    parallel.expect(expected("growth", kept + unsplit_remainder_bytes() - remainder_bytes))
    del output
    torch.cuda.empty_cache()
    kept = formulas.chunkwise_bytes(batch, heads, length, head_size, chunk)
    with trial.stage("chunkwise, training") as chunkwise:
        state = query.new_zeros(batch, heads, head_size, head_size)
        output, state = retain_chunkwise(query, key, value, decay, state, chunk)
    chunkwise.expect(expected("growth", kept + unsplit_remainder_bytes() - remainder_bytes))
    del output, state
    torch.cuda.empty_cache()
    token_bytes = block_bytes(tensor_bytes((batch, heads, 1, head_size)))
    kept = formulas.state_bytes(batch, heads, head_size) + token_bytes
    tokens = zip(query.split(1, -2), key.split(1, -2), value.split(1, -2), strict=True)
    with torch.no_grad():
        with trial.stage("recurrent, first token", expected("growth", kept)):
            state = query.new_zeros(batch, heads, head_size, head_size)
            q, k, v = next(tokens)
            output, state = retain_recurrent(q, k, v, decay, state)
        with trial.stage(f"recurrent, {length - 1} more tokens", expected("growth", 0)):
            for q, k, v in tokens:
                output, state = retain_recurrent(q, k, v, decay, state)
    del output, state
    return trial.outcome()
