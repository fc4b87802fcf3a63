"""What a schedule's run computes: the gradients of the model as a whole."""

from __future__ import annotations

import torch

from vramlab_course.tasks.repair import Run
from vramlab_course.workshops import workshop_e_pipeline as workshop


def test_gradients_are_those_of_the_whole_batch() -> None:
    case = {"ranks": 3, "micro_batches": 4}
    run = Run(case, workshop._one_forward_one_backward)
    with workshop.BARE_T4.but(count=workshop.RANKS).attached():
        run.inputs = workshop._model(run, **case)
        workshop._run_in_order(run)
        stages = run.inputs[0].stages
        found = [parameter.grad.cpu() for stage in stages for parameter in stage.parameters()]
        model = torch.nn.Sequential(*stages).to("cuda:0")
        model.zero_grad()
        model(run.inputs[0].batches.flatten(0, 1).to("cuda:0")).square().mean().backward()
        whole = [parameter.grad.cpu() for parameter in model.parameters()]
    assert len(found) == 3 * 2
    for one, other in zip(found, whole, strict=True):
        torch.testing.assert_close(one, other)
