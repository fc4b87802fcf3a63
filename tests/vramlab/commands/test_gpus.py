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


def test_json_of_one_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert vramlab("gpus", "A100-80GB", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    gpu = catalogue.find("A100-80GB")
    assert shown["total_bytes"] == gpu.total_bytes
    assert shown["compute_capability"] == [8, 0]
    assert shown["sources"] == dict(gpu.sources)
    assert shown["fp8_tensor_flops_per_s"] is None


def test_nothing_is_measured_without_a_gpu() -> None:
    with pytest.raises(VramlabError, match="there is no GPU on this machine that PyTorch can use"):
        vramlab("gpus", "--measure")


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
