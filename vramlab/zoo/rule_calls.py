"""Run a rule's calls (`vramlab.kernels.rule_table.calls`) on the attached GPU, each a stage."""

from __future__ import annotations

from contextlib import suppress

import torch

from vramlab.gpu.torch_internals import clear_cublas_workspaces
from vramlab.kernels import calls_of
from vramlab.measure import Result, Stages


def run(rule: str) -> Result:
    """Make every call of a rule on the attached GPU, each a stage, on an empty cache.

    Each call that needs a workspace of cuBLAS allocates it again. A call that PyTorch refuses is a
    stage with an error.

    Args:
        rule: the first of the rule's ops, such as 'aten.mm.default'.

    Raises:
        KeyError: there are no calls of that rule.
    """
    torch.manual_seed(0)
    stages = Stages(rule)
    for call in calls_of(rule):
        operands = [made() if callable(made) else made for made in call.operands]
        clear_cublas_workspaces()
        torch.cuda.empty_cache()
        result = None
        with suppress(RuntimeError), stages.stage(call.label):
            result = call.function(*operands)
        del result, operands
    return stages.result()
