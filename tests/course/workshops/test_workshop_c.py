"""What ranks average in the workshop on DDP: the gradient of the whole batch."""

from __future__ import annotations

import torch

from vramlab_course.tasks.building import BARE_T4
from vramlab_course.tasks.ranks import in_this_process
from vramlab_course.tasks.repair import Run
from vramlab_course.workshops import workshop_c_bucketed_ddp as workshop

CASE = {"widths": [8, 16, 4], "bucket_kib": 1}


def test_the_mean_over_ranks_is_the_gradient_of_all_rows() -> None:
    averaged, _ = workshop.DDP.trial.our_runs(CASE)  # type: ignore[attr-defined]
    with BARE_T4.but(count=workshop.RANKS).attached():
        run = Run(CASE, None)
        inputs = [workshop._model_and_rows(run, rank, **CASE) for rank in range(workshop.RANKS)]
        model, _ = inputs[0]
        rows = torch.cat([each.to("cuda:0") for _, each in inputs])
        model(rows).square().mean().backward()
        whole = {name: each.grad.cpu() for name, each in model.named_parameters()}
    for gradients in averaged.results:
        torch.testing.assert_close(gradients, whole)
    # (8 + 1) x 16 and (16 + 1) x 4 numbers of 4 B, in buckets of 1 KiB
    sizes_bytes = [4 * (17 * 4 + 16 + 8 * 16)]
    assert [[each.size_bytes for each in sent] for sent in averaged.sent] == 2 * [sizes_bytes]


def test_ranks_give_the_same_in_processes_and_in_threads() -> None:
    """Watching a run, which a kernel does in threads, shows what is judged."""
    trial = workshop.DDP.trial
    judged = trial._run(Run(CASE, workshop._bucketed))  # type: ignore[attr-defined]
    with in_this_process():
        watched = trial._run(Run(CASE, workshop._bucketed))  # type: ignore[attr-defined]
    for some, others in zip(judged.results, watched.results, strict=True):
        assert all(torch.equal(some[name], others[name]) for name in some)
    assert judged.record.held_bytes[0] == watched.record.held_bytes[0]
    assert [s for s in judged.record.steps if s.gpu == 0] == [
        s for s in watched.record.steps if s.gpu == 0
    ]
    assert [m for m in judged.record.marks if m.gpu == 0] == [
        m for m in watched.record.marks if m.gpu == 0
    ]
