"""`vramlab explain`, run as the command line runs it."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from vramlab import cli
from vramlab.allocator import AllocatorSettings, CachingAllocator, DeviceMemory, snapshot
from vramlab.units import GIB, MIB

LOG = (
    "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 5.00 GiB "
    "already allocated; 1.00 GiB free; 6.50 GiB reserved in total by PyTorch)\n"
)


def test_json_has_bytes_and_a_reading(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "oom.log.gz"
    log.write_bytes(gzip.compress(LOG.encode()))
    assert cli.main(["explain", "--json", str(log)]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["requested_bytes"], found["total_bytes"]) == (2 * 2**30, 8 * 2**30)
    assert found["reading"] == "fragmentation"  # missing: 2 - 1 = 1 GiB; cached: 6.5 - 5 = 1.5


def test_a_dash_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    assert cli.main(["explain", "-"]) == 0
    assert capsys.readouterr().out.startswith("standard input: 1 out-of-memory message\n")


def test_several_snapshots_are_explained_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "rank0.pickle", tmp_path / "rank1.pickle"]
    for size, path in enumerate(paths, 1):
        allocator = CachingAllocator(DeviceMemory(GIB), AllocatorSettings())
        allocator.record_history()
        allocator.malloc(size * 10 * MIB)
        path.write_bytes(pickle.dumps(snapshot([allocator])))
    assert cli.main(["explain", "--json", *map(str, paths)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["gpus"][0]["allocated_bytes"] for each in found] == [10 * MIB, 20 * MIB]


def test_the_nearest_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["explane", "oom.log"])
    assert "did you mean explain?" in capsys.readouterr().err


def test_it_needs_no_torch(tmp_path: Path) -> None:
    log = tmp_path / "oom.log"
    log.write_text(LOG)
    program = (
        "import sys; sys.modules['torch'] = None; from vramlab import cli; "
        f"sys.exit(cli.main(['explain', {str(log)!r}]))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


SCRIPT = str(Path(__file__).parents[2] / "scripts" / "train_mlp.py")


def test_categories_are_those_that_the_virtual_gpu_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guessed from the stacks of a snapshot, and known from the tensors of the same run."""
    report, snapshot = tmp_path / "report.json", tmp_path / "snapshot.pickle"
    words = ["--gpu", "T4", "--json", str(report), "--snapshot", str(snapshot), SCRIPT]
    assert cli.main(["run", *words]) == 0
    capsys.readouterr()
    assert cli.main(["explain", "--json", str(snapshot)]) == 0
    (explained,) = json.loads(capsys.readouterr().out)
    guessed = {each["name"]: each["size_bytes"] for each in explained["gpus"][0]["categories"]}
    known = json.loads(report.read_text())["devices"][0]["category_bytes"]
    for category in ("parameters", "optimizer states"):
        assert guessed[category] == known[category] > 0
