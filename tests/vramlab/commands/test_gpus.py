"""`vramlab gpus`, run as the command line runs it."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from vramlab import VirtualGPU, catalogue
from vramlab.cli import VerbParser
from vramlab.commands import gpus
from vramlab.errors import VramlabError


def vramlab(*argv: str) -> int:
    parser = VerbParser(prog="vramlab")
    gpus.add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(argv)
    status: int = arguments.run(arguments)
    return status


def test_the_table_has_a_line_for_every_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("gpus") == 0
    lines = capsys.readouterr().out.splitlines()
    named = [line.split()[0] for line in lines[1 : 1 + len(catalogue.names())]]
    assert tuple(named) == catalogue.names()
    assert len({len(line) for line in lines[: 1 + len(named)]}) == 1  # columns line up


def test_the_table_marks_estimates_and_what_is_absent(capsys: pytest.CaptureFixture[str]) -> None:
    vramlab("gpus")
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    # T4: 15,828,320,256 B / 2**30 = 14.74 GiB; the context is an estimate; no bfloat16.
    assert " ".join(lines["T4"]) == (
        "T4 14.74 GiB ~134 MiB 7.5 40 320 GB/s 8.1 TFLOP/s 65.0 TFLOP/s -"
    )
    assert " ".join(lines["H100"]) == (
        "H100 79.18 GiB 534 MiB 9.0 132 3,350 GB/s 66.9 TFLOP/s 989.4 TFLOP/s 989.4 TFLOP/s"
    )


def test_one_gpu_shows_every_figure_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("gpus", "rtx 3090") == 0
    shown = capsys.readouterr().out
    gpu = catalogue.find("RTX-3090")
    for figure, source in gpu.sources.items():
        assert f"  {figure} " in shown
        assert f"  source: {source}\n" in shown
    assert "  total_bytes  25,286,672,384 B (23.55 GiB)\n" in shown
    assert "0x2204\n" in shown
    assert "compute_capability     8.6\n" in shown
    assert "fp8_tensor_flops_per_s        not available on this GPU\n" in shown
    # 1639 MiB = 1.6006 GiB
    assert "  earlier context_bytes  1,718,616,064 B (1.60 GiB)\n" in shown


def test_json_is_the_whole_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("gpus", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [gpu["name"] for gpu in shown] == list(catalogue.names())


def test_json_of_one_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("gpus", "A100-80GB", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    gpu = catalogue.find("A100-80GB")
    assert shown["total_bytes"] == gpu.total_bytes
    assert shown["compute_capability"] == [8, 0]
    assert shown["sources"] == dict(gpu.sources)
    assert shown["fp8_tensor_flops_per_s"] is None


def test_an_unknown_name_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("gpus", "A100") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Did you mean A100-40GB, A100-80GB, " in captured.err


def test_a_bad_figure_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("gpus", "H100,memory=60GB") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("invalid 'memory=60GB': invalid size '60GB'")


def test_one_gpu_lists_its_mig_slices(capsys: pytest.CaptureFixture[str]) -> None:
    vramlab("gpus", "a30")
    assert "MIG slices: A30-1g.6gb, A30-2g.12gb, A30-4g.24gb\n" in capsys.readouterr().out
    vramlab("gpus", "A30-1g.6gb")
    shown = capsys.readouterr().out
    assert shown.startswith("A30-1g.6gb: NVIDIA A30 MIG 1g.6gb\n")
    assert "MIG slices" not in shown


def test_the_table_names_the_gpus_that_all_means(capsys: pytest.CaptureFixture[str]) -> None:
    vramlab("gpus")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("`vramlab run --gpu all` tries T4, V100-16GB, ")
    assert last.endswith("H100, H200, B200.")


def test_nothing_is_measured_without_a_gpu() -> None:
    with pytest.raises(VramlabError, match="there is no GPU on this machine that PyTorch can use"):
        vramlab("gpus", "--measure")


def test_measuring_takes_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("gpus", "--measure", "T4") == 2
    assert "cannot be combined with a GPU name" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["RTX-5090", "RTX-A6000", "T4"])
def test_a_measured_entry_is_the_gpus(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with VirtualGPU(name) as gpu:
        assert vramlab("gpus", "--measure") == 0
        shown = capsys.readouterr().out
    text = (resources.files("vramlab") / "gpus.toml").read_text(encoding="utf-8")
    first, _, last = text.partition("[[mig]]")
    renamed = shown.replace(f'name = "{name}"', 'name = "measured"', 1)
    *_, found = catalogue.parse(f"{first}{renamed}\n[[mig]]{last}")
    assert found.name == "measured"
    for figure in ("total_bytes", "nvml_total_bytes", "compute_capability", "multiprocessors"):
        assert getattr(found, figure) == getattr(gpu.model, figure), figure
        assert found.sources[figure].startswith("vramlab gpus --measure: driver ")
    # The virtual GPU has nothing in use before its context, and after it the context alone.
    assert found.context_bytes == gpu.model.context_bytes
    assert found.pci_device_id == gpu.model.pci_device_id
    assert shown.startswith(f"# The catalogue has it as {name}.")
