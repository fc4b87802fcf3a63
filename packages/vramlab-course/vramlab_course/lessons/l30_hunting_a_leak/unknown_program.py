"""Trainings that differ in one line, and what a memory snapshot of them says.

The program has no file that could be read: all there is to know of it is in the snapshot.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

LINES = {
    "outputs": "kept.append(output.detach())",
    "batches": "kept.append(x)",
    "losses": "kept.append(loss.detach())",
    "copies": "kept.append((output * 2).detach())",
}
"""The line that keeps something, by what it keeps."""

_ALLOCATES = {
    "outputs": "output = model(x)",
    "batches": 'x = torch.zeros(rows, width, device="cuda")',
    "losses": "loss = (output - x).square().mean()",
    "copies": LINES["copies"],
}
"""The line that allocated what is kept."""

_PROGRAM = """\
def step(number):
    x = torch.zeros(rows, width, device="cuda")
    output = model(x)
    loss = (output - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if number % 4 not in masks:
        masks[number % 4] = torch.ones(8 * rows, width, device="cuda")
    {line}
    return x, loss
"""


def snapshot_of(
    keeps: str, rows: int, width: int, first: int, lines_above: int, steps: int = 12
) -> tuple[list[dict[str, Any]], str]:
    """Train on the current GPU, and record the memory history.

    Args:
        keeps: one of `LINES`.
        rows: of a batch.
        width: of its rows, and of the layers.
        first: step at which the recording begins.
        lines_above: lines of the program before these.
        steps: how many there are in all.

    Returns:
        The trace, each event with its `action`, `address`, `bytes` and the `line` of the program;
        and the line that allocated what accumulates.
    """
    source = "\n" * lines_above + _PROGRAM.format(line=LINES[keeps])
    number = next(n for n, text in enumerate(source.splitlines(), 1) if _ALLOCATES[keeps] in text)
    layers = [nn.Linear(width, width) for _ in range(4)]
    model = nn.Sequential(*layers).to("cuda")
    names: dict[str, Any] = {
        "torch": torch,
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters()),
        "rows": rows,
        "width": width,
        "kept": [],
        "masks": {},
    }
    exec(compile(source, "train.py", "exec"), names)
    held = None
    for step in range(steps):
        if step == first:
            torch.cuda.memory._record_memory_history(stacks="python")
        held = names["step"](step)
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    del held
    return [_event(event) for event in events if event["action"] in _ACTIONS], f"train.py:{number}"


_ACTIONS = {"alloc": "alloc", "free_completed": "free"}


def _event(event: dict[str, Any]) -> dict[str, Any]:
    own = [frame for frame in event.get("frames", ()) if frame["filename"] == "train.py"]
    return {
        "action": _ACTIONS[event["action"]],
        "address": event["addr"],
        "bytes": event["size"],
        "line": f"train.py:{own[0]['line']}" if own else "",
    }
