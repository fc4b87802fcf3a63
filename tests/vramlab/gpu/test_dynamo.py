"""Dynamo on a virtual GPU: training does not import it, and who needs it gets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from vramlab.gpu.stand_ins.dynamo import without_dynamo
from vramlab.gpu.torch_internals import DYNAMO, KEPT_BY_DYNAMO

PROGRAM = """
import sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import vramlab

def kept():
    return sorted(name for name in vars(torch.optim.Optimizer.add_param_group.__wrapped__))

with vramlab.VirtualGPU("T4"):
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        x = torch.randn(4, 8, device="cuda", requires_grad=True)
        checkpoint(model, x, use_reentrant=False).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert kept() == ["__dynamo_disable"], kept()
    print("torch._dynamo.convert_frame" in sys.modules)
assert kept() == [], kept()
print("torch._dynamo" in sys.modules)

# It is there for who needs it: on the host, and on a GPU that is attached.
torch.optim.AdamW(model.parameters())
assert torch._dynamo.convert_frame is sys.modules["torch._dynamo.convert_frame"]
compiled = torch.compile(lambda x: x + 1, backend="eager")
print(compiled(torch.ones(2)).tolist())
with vramlab.VirtualGPU("T4"):
    torch._dynamo.graph_break()
    print(torch.ones(2, device="cuda").shape)
"""


def test_a_program_that_trains_does_not_import_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["False", "False", "[2.0, 2.0]", "torch.Size([2])"]


def test_one_that_is_there_is_left_in_place() -> None:
    dynamo = torch._dynamo
    with without_dynamo():
        assert sys.modules[DYNAMO] is dynamo
        assert torch._dynamo is dynamo


def test_pytorch_keeps_its_answers_where_they_are_looked_for() -> None:
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
    assert KEPT_BY_DYNAMO in vars(torch.optim.Optimizer.add_param_group.__wrapped__)
