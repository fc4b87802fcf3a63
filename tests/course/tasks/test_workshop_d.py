"""What ranks compute in the workshop on FSDP: their parts of the whole batch's gradients."""

from __future__ import annotations

import pytest
import torch

from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks import workshop_d_fsdp as workshop
from vramlab_course.tasks.building import BARE_T4
from vramlab_course.tasks.repair import Run


def test_shards_of_gradients_are_those_of_the_mean_over_ranks() -> None:
    run = Run({"layers": 2}, workshop._gathered_for_each_layer)
    with BARE_T4.but(count=workshop.RANKS).attached():
        run.inputs = workshop._ranks(run, layers=2)
        run.record.held_bytes = {0: [0]}
        found = workshop._step(run)
        rows = [each.cpu() for each in run.inputs[1]]
        weights = [each.clone().requires_grad_() for each in run.inputs[2]]
    for x in rows:
        for weight in weights:
            x = torch.tanh(x @ weight)
        (x.square().mean() / workshop.RANKS).backward()
    for layer, weight in enumerate(weights):
        assert weight.grad is not None
        parts = [of_rank[layer] for of_rank in found.gradients]
        torch.testing.assert_close(torch.cat(parts), weight.grad)
    assert found.collectives == 2 * 3  # each weight is gathered twice, each gradient scattered once


def test_gradients_from_the_last_layer_to_the_first_are_said_to_be() -> None:
    right = [torch.full((1, 2), float(layer)) for layer in range(3)]
    run = Run({"layers": 3}, workshop._gathered_for_each_layer)
    run.results = workshop.Sharded([right[::-1]], 9, (0, 1))
    with pytest.raises(NotFixed, match="in the wrong order: yours go from the last layer"):
        workshop._same_gradients(run, workshop.Sharded([right], 9, (0, 1)))
