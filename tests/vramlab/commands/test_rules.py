"""`vramlab rules`, run as the command line runs it, and its forms on rules made by hand."""

from __future__ import annotations

import argparse
import json

import pytest

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
    parser = argparse.ArgumentParser(prog="vramlab")
    rules.add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["rules", *argv])
    status: int = arguments.run(arguments)
    return status


def test_text_groups_rules_by_how_sure_they_are() -> None:
    assert list(rules.text([SURE, READ])) == [
        "confirmed by a published figure:",
        "",
        "  aten.mm(default, out)",
        "    takes   a clone | a workspace",
        "    source  Blas.cpp",
        "",
        "read from PyTorch's source, not yet confirmed on a GPU:",
        "",
        "  aten.topk, aten.sort(stable)",  # aten.topk stands for all its overloads
        "    takes   scratch",
        "    source  Sort.cu",
        "",
    ]


def test_markdown_escapes_what_would_end_a_cell() -> None:
    assert rules.markdown([SURE]).splitlines() == [
        "| op | takes beyond its outputs | source | status |",
        "| --- | --- | --- | --- |",
        r"| `aten.mm(default, out)` | a clone \| a workspace | Blas.cpp | "
        "confirmed by a published figure |",
    ]


def test_summary_counts_each_status() -> None:
    assert rules.summary([SURE, READ, READ]) == (
        "3 rules: 1 confirmed by a published figure; "
        "2 read from PyTorch's source, not yet confirmed on a GPU"
    )


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
    [
        ("silu", "aten.silu.default: its kernel takes its outputs and nothing else"),
        (
            "aten._fft_c2c",
            "aten._fft_c2c.default: a library decides the size of its workspace: counted by its "
            "outputs only",
        ),
    ],
)
def test_of_an_op_without_a_rule_it_says_what_is_known(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vramlab(name) == 0
    assert capsys.readouterr().out.splitlines()[0] == said


def test_an_op_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("no_such_op") == 2
    assert capsys.readouterr().err == "PyTorch has no op no_such_op\n"


def test_an_op_that_is_named_in_full_tells_its_whole_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert vramlab("aten.index.Tensor") == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0] == (
        "aten.index.Tensor: a rule says what its kernel takes beyond its outputs"
    )
    headings = [line[4:17].rstrip() for line in shown.splitlines()[1:] if line[4:5].strip()]
    assert headings == [
        "schema",
        "handler",
        "CUDA path",
        "autocast",
        "check",
        "outputs",
        "layout",
        "fill",
        "takes",
        "source",
        "status",
    ]
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
    assert shown.err == "PyTorch has no op aten.no_such_op\n"
    assert shown.out.startswith("aten.relu.default: ")
