"""Steps are counted however weights are updated; evaluation is distinguished from training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramlab.cli import main

MODEL = (
    "import torch\n"
    "model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)).cuda()\n"
    "x = torch.ones(4, 8, device='cuda')\n"
    "weights = list(model.parameters())\n"
)

UPDATES = {
    "by hand, p.data": (
        "for step in range(100):\n    model.zero_grad()\n    model(x).sum().backward()\n"
        "    for p in weights: p.data.add_(p.grad, alpha=-0.1)\n    print(step)\n"
    ),
    "by hand, gradients set to zero": (
        "for step in range(100):\n    model(x).sum().backward()\n"
        "    for p in weights: p.data -= 0.1 * p.grad; p.grad.zero_()\n    print(step)\n"
    ),
    "by hand, gradients accumulated": (
        "for step in range(100):\n    model.zero_grad()\n"
        "    for _ in range(3): model(x).sum().backward()\n"
        "    for p in weights: p.data -= 0.1 * p.grad\n    print(step)\n"
    ),
    "weights replaced": (
        "w = torch.ones(8, 1, device='cuda', requires_grad=True)\n"
        "for step in range(100):\n    (g,) = torch.autograd.grad((x @ w).sum(), w)\n"
        "    w = (w - 0.1 * g).detach().requires_grad_()\n    print(step)\n"
    ),
    "an optimizer of no library": (
        "class Mine:\n    def step(self):\n        for p in weights: p.data -= 0.1 * p.grad\n"
        "for step in range(100):\n    model.zero_grad()\n    model(x).sum().backward()\n"
        "    Mine().step()\n    print(step)\n"
    ),
    "an optimizer that inherits": (
        "class Mine(torch.optim.Optimizer):\n    def step(self):\n"
        "        for p in weights: p.data -= 0.1 * p.grad\n"
        "mine = Mine(weights, {})\n"
        # Gradients that are looked at for another purpose are no steps.
        "for step in range(100):\n    y = x.clone().requires_grad_()\n"
        "    torch.autograd.grad(model(y).sum(), y)\n    print(step)\n"
        "    mine.zero_grad()\n    model(x).sum().backward()\n    mine.step()\n"
    ),
}


def run(folder: Path, text: str, *options: str) -> dict[str, Any]:
    script, report = folder / "program.py", folder / "report.json"
    script.write_text(text)
    assert main(["run", *options, "--json", str(report), str(script)]) == 0
    told: dict[str, Any] = json.loads(report.read_text())
    return told


@pytest.mark.parametrize("text", UPDATES.values(), ids=UPDATES)
def test_steps_are_counted_however_weights_are_updated(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run(tmp_path, MODEL + text, "--steps", "2")
    assert capsys.readouterr().out == "0\n1\n"
    assert (report["stopped_by"], report["fits"]) == ("--steps", True)
    counts = report["counts"]
    assert counts["optimizer_steps"] + counts["updates_by_hand"] == 2


def test_passes_are_counted_by_what_they_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "model.eval()\nloss = torch.nn.MSELoss()\n"  # without parameters: no pass of a model
        "for _ in range(3):\n    with torch.no_grad(): loss(model(x), x[:, :1])\n"
        "with torch.inference_mode(): model(x)\n"
        "for wrong in (x[:, 1:], x):\n"
        "    try: model(wrong).sum().backward()\n    except RuntimeError: pass\n"
    )
    counts = run(tmp_path, MODEL + text)["counts"]
    assert (counts["forward_passes"], counts["evaluations"]) == (3 + 1 + 2, 3 + 1)
    assert (counts["backward_passes"], counts["optimizer_steps"]) == (1, 0)
    assert ", 1 training step, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model(x).sum().backward()\n", "No optimizer step ran"),
        ("model(x).sum().backward()\nsgd.step()\n", "Only one optimizer step ran"),
        ("model(x).sum().backward()\nsgd.step()\nsgd.step()\n", ""),
    ],
)
def test_a_report_until_then_says_what_is_missing(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        f"{MODEL}sgd = torch.optim.SGD(weights, momentum=0.9)\n{text}raise ValueError\n"
    )
    assert main(["run", str(script)]) == 1
    err = capsys.readouterr().err
    assert told in err
    assert ("step ran" in err) == bool(told)
