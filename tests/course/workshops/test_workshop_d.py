"""What ranks compute in the workshop on FSDP: their parts of the whole batch's gradients."""

from __future__ import annotations

import pytest
import torch

from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.building import BARE_T4
from vramlab_course.tasks.repair import Run
from vramlab_course.workshops import workshop_d_fsdp as workshop


def test_shards_of_gradients_are_those_of_the_mean_over_ranks() -> None:
    found, _ = workshop.FSDP.trial.our_runs({"layers": 2})  # type: ignore[attr-defined]
    with BARE_T4.but(count=workshop.RANKS).attached():
        ranks = range(workshop.RANKS)
        inputs = [workshop._shards_and_rows(Run({}, None), rank, layers=2) for rank in ranks]
        rows = [x.cpu() for _, x in inputs]
        parts = [[shard.cpu() for shard in shards] for shards, _ in inputs]
        weights = [torch.cat(each).requires_grad_() for each in zip(*parts, strict=True)]
    for x in rows:
        for weight in weights:
            x = torch.tanh(x @ weight)
        (x.square().mean() / workshop.RANKS).backward()
    for layer, weight in enumerate(weights):
        assert weight.grad is not None
        torch.testing.assert_close(torch.cat([each[layer] for each in found.results]), weight.grad)
    # each weight is gathered twice, each gradient scattered once
    assert [len(messages) for messages in found.sent] == 4 * [2 * 3]


def test_gradients_from_the_last_layer_to_the_first_are_said_to_be() -> None:
    right = [torch.full((1, 2), float(layer)) for layer in range(3)]
    run = Run({"layers": 3}, workshop._gathered_for_each_layer)
    run.results = [right[::-1]]
    with pytest.raises(NotFixed, match="in the wrong order: yours go from the last layer"):
        workshop._same_gradients(run, [right])
