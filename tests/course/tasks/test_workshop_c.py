"""What ranks average in the workshop on DDP: the gradient of the whole batch."""

from __future__ import annotations

import torch

from vramlab_course.tasks import workshop_c_bucketed_ddp as workshop
from vramlab_course.tasks.building import BARE_T4
from vramlab_course.tasks.repair import Run


def test_the_mean_over_ranks_is_the_gradient_of_all_rows() -> None:
    run = Run({"widths": [8, 16, 4], "bucket_kib": 1}, workshop._bucketed)
    with BARE_T4.but(count=workshop.RANKS).attached():
        run.inputs = workshop._ranks(run, **run.case)
        run.record.held_bytes = {0: [0]}
        averaged = workshop._step(run)
        model = run.inputs[0]
        rows = torch.cat([each.to("cuda:0") for each in run.inputs[1::2]])
        model.zero_grad()
        for parameter in model.parameters():
            parameter._post_accumulate_grad_hooks.clear()  # type: ignore[union-attr]
        model(rows).square().mean().backward()
        whole = {name: each.grad.cpu() for name, each in model.named_parameters()}
    for gradients in averaged.gradients:
        torch.testing.assert_close(dict(gradients), whole)
    # (8 + 1) x 16 and (16 + 1) x 4 numbers of 4 B, in buckets of 1 KiB
    assert averaged.traffic.sizes_bytes == [4 * (17 * 4 + 16 + 8 * 16)]
