"""What a verdict rests on: the first line says so where something that decides it is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vramlab.cli import main
from vramlab.kernels import unconfirmed
from vramlab.report.evidence import unsure_operators
from vramlab.report.summary import Fit

pytestmark = pytest.mark.long

HEAD = """\
import math, torch
model = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.SGD(model.parameters(), 0.1)
x = torch.randn(8, 64, device="cuda")
def step():
    loss = model(x).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    return loss
"""


def report(folder: Path, text: str, *options: str, head: str = HEAD) -> dict[str, Any]:
    script = folder / f"program{len(list(folder.iterdir()))}.py"
    script.write_text(head + text, encoding="utf-8")
    path = folder / "report.json"
    words = ("--engine", "portable", "--gpu", "T4", "--json", str(path), *options)
    main(["run", *words, str(script)])
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return told


def lines_of(told: dict[str, Any]) -> list[int]:
    """The lines of the program that the reasons name."""
    return [int(reason["text"].partition(".py:")[2].split()[0]) for reason in told["reasons"]]


SHOWS = [
    "print(step().item())",
    "total = 0.0\nfor _ in range(3):\n    total += step().item()\nprint(f'{total / 3:.3f}')",
    "losses = torch.zeros(2)\n"
    "for k in range(2):\n    losses[k] = step().item()\nprint(losses.mean())",
    "best = 1e9\n"
    "if (loss := step().item()) < best:\n    best = loss\n    torch.save(model, 'm.pt')",
    "best = 1e9\nbest = min(best, step().item())\nprint(best)",
    # a variable of the same name in a function is another one
    "def size():\n    loss = 4\n    return loss\n"
    "loss = step().item()\ntorch.zeros(size(), device='cuda')\nprint(loss)",
    "loss = step()\n"
    "if not math.isfinite(loss.item()):\n    raise ValueError\nif loss.isnan(): exit(1)",
    "def log(values):\n    for name, v in values.items():\n        print(name, v)\n"
    "log({'loss': step().item()})",
    "class Meter:\n    def __init__(self): self.sum, self.count = 0, 0\n"
    "    def update(self, v): self.sum += v; self.count += 1\n"
    "    def average(self): return self.sum / self.count\n"
    "m = Meter(); m.update(step().item()); print(m.average())",
    "hits = (model(x).argmax(1) == 3).sum().item()\nprint(hits / len(x))",
    "def is_better(new, old):\n    if new < old:\n        return True\n    return False\n"
    "if is_better(step().item(), 3.0):\n    print('better')",
    "ids = model(x).argmax(1).cpu().numpy()\nwords = []\nfor w in ids:\n"
    "    words.append(str(w))\n    if w == 2:\n        break\nprint(' '.join(words))",
    "value = step().item()\nif value is not None and isinstance(value, (int, float)):\n    step()",
    "rate = step().item()\nwhile rate > 1:\n    rate /= 2\nprint(rate)",
    "class Trainer:\n    def log(self, logs):\n"
    "        self.control = self.handler.on_log(logs)\n        self.history = [logs]\n"
    "    def train(self):\n        self.log({'loss': step().item()})\n"
    "        if self.control:\n            step()\n"
    "trainer = Trainer()\ntrainer.handler = type('H', (), {'on_log': lambda self, logs: 1})()\n"
    "trainer.train()",
    "array = model(x).detach().cpu().numpy()\nprint(array.mean(), array.shape[0])\n"
    "y = torch.zeros(array.shape[0], device='cuda')",
]

DECIDES = [
    ("t = x.sum()\nwhile t < 3:\n    t = t + step()", 10),
    ("t = 0.0\nwhile t < 3:\n    t += step().item()", 10),
    ("for _ in range(9):\n    if step() < 0.1:\n        break", 10),
    ("done = step() < 3\nfor _ in range(9):\n    if not done:\n        step()", 11),
    ("n = int(x.argmax().item())\ny = torch.zeros(n, 4, device='cuda')", 10),
    ("n = model(x).argmax()\ny = x[:n]", 10),
    ("for _ in range(int(x.argmax())):\n    step()", 9),
    ("if step().item() < 3:\n    y = [p.clone() for p in model.parameters()]", 9),
    (
        "best, wait = 1e9, 0\nfor _ in range(9):\n    loss = step().item()\n"
        "    if loss < best:\n        best, wait = loss, 0\n    else:\n        wait += 1\n"
        "    if wait > 3:\n        break",
        16,
    ),
    (
        "class Environment:\n    def step(self, a): return a > 0\n"
        "env = Environment()\ndone = False\nwhile not done:\n"
        "    action = model(x).argmax().item()\n    done = env.step(action) or True",
        13,
    ),
    (
        "def converged(error):\n    return error < 0.1\nerror = 1.0\n"
        "while not converged(error):\n    error = step().item()\n    if error != error: break",
        12,
    ),
    ("a = model(x).detach().cpu().numpy()\nwhile a.max() > 3:\n    a = a / 2", 10),
    (
        "def early():\n    if step() > 3:\n        return\n    y = torch.ones(9, device='cuda')\n"
        "early()",
        10,
    ),
]


@pytest.mark.parametrize("text", SHOWS)
def test_values_that_are_only_shown_change_no_verdict(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = report(tmp_path, text)
    assert told["value_reads"]
    assert (told["outcome"], told["fits"], told["reasons"]) == ("fits", True, [])
    assert "\nfits: cuda:0 needs " in capsys.readouterr().err


@pytest.mark.parametrize(("text", "line"), DECIDES)
def test_values_that_decide_stand_in_the_first_line(
    text: str, line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = report(tmp_path, text)
    assert (told["outcome"], told["fits"]) == ("at least", None)
    assert line in lines_of(told)
    (first,) = (each for each in capsys.readouterr().err.splitlines() if "at the peak, " in each)
    assert first.startswith("at least ")
    assert ".py:" in first.partition(", because ")[2]


def test_kernels_that_were_not_read_count_by_their_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = report(
        tmp_path,
        "torch.linalg.svdvals(torch.randn(512, 512, device='cuda'))",
        head="import torch\n",
    )
    assert large["outcome"] == "at least"
    assert "linalg.svd" in large["reasons"][0]["text"]
    text = "y = torch.randn(2**20, device='cuda')\ntorch.linalg.svdvals(y[:4].view(2, 2) * 2)"
    small = report(tmp_path, text, head="import torch\n")  # 16 B beside 4 MiB
    assert (small["outcome"], small["reasons"]) == ("fits", [])
    assert "linalg.svd" in capsys.readouterr().err


def test_kernels_that_a_handler_models_are_read(tmp_path: Path) -> None:
    """Packing, cells and CTC's gradient, which have no rule."""
    text = """
from torch.nn.utils.rnn import pack_padded_sequence
x = torch.randn(50, 16, 64, device="cuda", requires_grad=True)
packed = pack_padded_sequence(x, torch.arange(50, 34, -1)).data
hidden, _ = torch.nn.LSTMCell(64, 64).cuda()(packed)
scores = torch.randn(50, 16, 20, device="cuda", requires_grad=True).log_softmax(-1)
targets = torch.ones(16, 10, dtype=torch.long).cuda()
lengths = torch.full((16,), 50), torch.full((16,), 10)
(torch.nn.functional.ctc_loss(scores, targets, *lengths) + hidden.sum()).backward()
"""
    told = report(tmp_path, text, head="import torch")
    assert (told["outcome"], told["reasons"]) == ("fits", [])


@pytest.mark.parametrize(("size", "outcome"), [(512, "at least"), (2, "fits")])
def test_operators_that_are_not_confirmed_are_named(
    size: int,
    outcome: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (line,) = unconfirmed.read_table(["# a comment", "", "torch.relu: tried with nothing"])
    assert line == unconfirmed.Unconfirmed("torch.relu", ("aten.relu",), "tried with nothing")
    table = {torch.ops.aten.relu.default: line}
    monkeypatch.setattr(unsure_operators, "unconfirmed", table.get)
    text = f"y = torch.ones(512, 512, device='cuda')\ny[:{size}, :{size}].clone().relu()"
    told = report(tmp_path, text, head="import torch\n")
    assert told["outcome"] == outcome
    assert told["unsure_operators"] == {"torch.relu": "tried with nothing"}
    assert "\nnot confirmed: torch.relu: tried with nothing\n" in capsys.readouterr().err + "\n"


def test_the_table_can_be_read_and_names_operators_that_exist() -> None:
    table = unconfirmed.read_table(unconfirmed.TABLE.read_text(encoding="utf-8").splitlines())
    for line in table:
        assert any(any(unconfirmed.overloads(name)) for name in line.operators), line
    assert unconfirmed.unconfirmed(torch.ops.aten._fft_r2c.default) is not None
    assert unconfirmed.unconfirmed(torch.ops.aten.add.Tensor) is None
    lines = ["torch.a.pdist = aten._pdist_forward, aten._pdist_backward: why: this"]
    assert unconfirmed.read_table(lines) == [
        unconfirmed.Unconfirmed(
            "torch.a.pdist", ("aten._pdist_forward", "aten._pdist_backward"), "why: this"
        )
    ]
    with pytest.raises(ValueError, match="invalid line 'nothing'"):
        unconfirmed.read_table(["nothing"])


def test_convolutions_that_nobody_knows_change_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRAMLAB_CUDNN", "off")
    text = "torch.nn.Conv2d(3, 5, 7).cuda()(torch.ones(1, 3, 9, 9, device='cuda'))"
    told = report(tmp_path, text, head="import torch\n")
    assert told["outcome"] == "at least"
    assert "1 convolution" in told["reasons"][0]["text"]


@pytest.mark.parametrize(("momentum", "outcome"), [(0.9, "at least"), (0, "fits")])
def test_states_that_no_pass_has_met_change_the_verdict(
    momentum: float, outcome: str, tmp_path: Path
) -> None:
    text = f"opt = torch.optim.SGD(model.parameters(), 0.1, momentum={momentum})\nstep(); step()"
    assert report(tmp_path, text, "--steps", "1")["outcome"] == outcome
    assert report(tmp_path, text, "--steps", "2")["outcome"] == "fits"


FAILURES = [
    ("table = {1: 'a'}\nprint(table[model(x).argmax().item()])", True),
    ("n = model(x).argmax().item()\nprint(3 / n)", True),
    ("names = [1]\nn = int(step())\nprint(names[n])", True),  # int(nan)
    ("loss = step().item()\nif not loss < 3:\n    raise ValueError('diverged')", True),
    ("y = x[x > 0]\nprint((y + torch.ones(3, device='cuda')).shape)", True),
    ("print(step().item())\nraise ValueError('something else')", False),
    ("print(step().item())\nprint(undefined)", False),
    ("print(step().item())\nmodel(torch.ones(3, 3, device='cuda'))", False),
    ("print(step().item())\n{}['key']", False),
]


@pytest.mark.parametrize(("text", "follows"), FAILURES)
def test_a_hint_names_a_value_only_where_the_failure_depends_on_it(
    text: str, follows: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = report(tmp_path, text)
    assert told["error"]
    assert (told["read_of_failure"] is not None) is follows
    assert ("The cause is a value read from the GPU" in capsys.readouterr().err) is follows


@pytest.mark.parametrize(
    ("outcome", "had_room", "is_sure"),
    [
        (Fit.FITS, True, True),
        (Fit.AT_LEAST, True, False),
        (Fit.AT_MOST, True, True),
        (Fit.ABOUT, True, False),
        (Fit.DOES_NOT_FIT, False, True),
        (Fit.MAY_NOT_FIT, False, False),
        (Fit.CUT_SHORT, None, False),
    ],
)
def test_outcomes(outcome: Fit, had_room: bool | None, is_sure: bool) -> None:
    assert (outcome.had_room, outcome.is_sure) == (had_room, is_sure)
