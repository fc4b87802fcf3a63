"""`vramlab rules`, run as the command line runs it, and its forms on rules made by hand."""

from __future__ import annotations

import json

import pytest

from vramlab.cli import VerbParser
from vramlab.commands import rules
from vramlab.kernels import TABLE, Rule, Status, Step


def no_steps(*_: object) -> list[Step]:
    return []


SURE = Rule(
    ("aten.mm.default", "aten.mm.out"),
    no_steps,
    "a clone | a workspace",
    "Blas.cpp",
    Status.PUBLISHED,
)


def vramlab(*argv: str) -> int:
    parser = VerbParser(prog="vramlab")
    rules.add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["rules", *argv])
    status: int = arguments.run(arguments)
    return status


def test_json_has_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == [rules.as_dict(line) for line in TABLE.surest_first()]
    assert rules.as_dict(SURE) == {
        "ops": ["aten.mm.default", "aten.mm.out"],
        "takes": "a clone | a workspace",
        "source": "Blas.cpp",
        "status": "published",
    }


def test_text_names_every_op_and_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab() == 0
    shown = capsys.readouterr().out
    *listed, summary = shown.splitlines()
    assert max(map(len, listed)) <= 100
    assert summary.startswith(f"{len(TABLE.surest_first())} rules: ")
    for line in TABLE.surest_first():
        for op in line.ops:
            assert ".".join(op.split(".")[:2]) in shown


@pytest.mark.parametrize(
    ("name", "said"),
    [("aten.silu.default", "outputs and nothing else"), ("aten._fft_c2c.default", "a library")],
)
def test_of_an_op_without_a_rule_it_says_what_is_known(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vramlab(name) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"{name}: ")
    assert said in first


def test_an_op_that_is_named_in_full_tells_its_whole_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert vramlab("aten.index.Tensor") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("aten.index.Tensor: ")
    assert "vramlab.gpu.ops.indexing.index: " in shown
    assert "TensorAdvancedIndexing.cpp" in shown
    assert max(map(len, shown.splitlines())) <= 100
