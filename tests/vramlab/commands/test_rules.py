"""`vramlab rules`, run as the command line runs it, and its forms on rules made by hand."""

from __future__ import annotations

import json
import re

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
READ = Rule(("aten.topk", "aten.sort.stable"), no_steps, "scratch", "Sort.cu", Status.FROM_SOURCE)


def vramlab(*argv: str) -> int:
    parser = VerbParser(prog="vramlab")
    rules.add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["rules", *argv])
    status: int = arguments.run(arguments)
    return status


def test_text_groups_rules_by_how_sure_they_are() -> None:
    lines = list(rules.text([SURE, READ]))
    sure, read = (
        lines.index(op) for op in ("  aten.mm(default, out)", "  aten.topk, aten.sort(stable)")
    )
    assert sure < read  # aten.topk stands for all its overloads
    assert lines[sure + 1 : sure + 3] == [
        "    memory  a clone | a workspace",
        "    source  Blas.cpp",
    ]


def test_markdown_escapes_what_would_end_a_cell() -> None:
    *_, row = rules.markdown([SURE]).splitlines()
    assert r"| a clone \| a workspace | Blas.cpp |" in row


def test_summary_counts_each_status() -> None:
    assert re.findall(r"\d+", rules.summary([SURE, READ, READ])) == ["3", "1", "2"]


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


def test_a_word_chooses_the_ops_that_contain_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("layer_norm", "--json") == 0
    chosen = json.loads(capsys.readouterr().out)
    assert chosen
    assert all(any("layer_norm" in op for op in rule["ops"]) for rule in chosen)


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


def test_an_op_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("no_such_op") == 2
    assert capsys.readouterr().err == "unknown op 'no_such_op': PyTorch has no such op\n"


def test_an_op_that_is_named_in_full_tells_its_whole_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert vramlab("aten.index.Tensor") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("aten.index.Tensor: ")
    assert "vramlab.gpu.ops.indexing.index: " in shown
    assert "TensorAdvancedIndexing.cpp" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_all_overloads_of_an_op_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("aten.index", "--json") == 0
    told = {record["op"] for record in json.loads(capsys.readouterr().out)}
    # aten.index.Tensor_hacked_twin, TorchScript's own, is nothing that a program can call.
    assert told == {"aten.index.Tensor", "aten.index.Tensor_out"}


def test_names_and_words_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("aten.relu.default", "layer_norm", "--json") == 0
    record, *found = json.loads(capsys.readouterr().out)
    assert record["op"] == "aten.relu.default"
    assert found
    assert all(any("layer_norm" in op for op in rule["ops"]) for rule in found)


def test_what_does_not_exist_is_named_beside_what_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("aten.relu.default", "aten.no_such_op") == 2
    shown = capsys.readouterr()
    assert shown.err == "unknown op 'aten.no_such_op': PyTorch has no such op\n"
    assert shown.out.startswith("aten.relu.default: ")
