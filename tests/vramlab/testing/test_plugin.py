"""`@pytest.mark.vram`: tests run on a virtual GPU, and fail where they need more than they may."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from warm_python import warm_python

from vramlab.errors import VramlabError
from vramlab.testing.golden import golden_path
from vramlab.testing.limits import Limit, Request
from vramlab.units import GIB, MIB

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]

TESTS = """
import pytest, torch

@pytest.fixture
def weights():
    return torch.empty(3 * 2**20, device="cuda")  # 12 MiB

@pytest.mark.vram(gpu="T4", peak="<= 12 MiB", needed="<= 1 GiB")
def test_within(weights):
    assert torch.cuda.get_device_name() == "Tesla T4"

@pytest.mark.vram(gpu="T4", peak="< 12 MiB")
def test_beyond(weights):
    pass

@pytest.mark.vram(gpu="L4", count=2)
@pytest.mark.parametrize("place", ["cuda:0", "cuda:1"])
def test_golden(place):
    torch.empty(SIZE * 2**20, device=place)

@pytest.mark.vram
def test_nothing():
    pass

def test_without_a_mark():
    assert not torch.cuda.is_available()
"""


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    command = [warm_python(), "-m", "pytest", "-p", "vramlab.testing.plugin", "-q", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def outcomes(ran: subprocess.CompletedProcess[str]) -> set[str]:
    """Names of the tests that failed."""
    lines = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return {line.split(" - ")[0].rpartition("::")[2] for line in lines}


def test_limits_and_golden_files(tmp_path: Path) -> None:
    module = tmp_path / "test_memory.py"
    module.write_text(TESTS.replace("SIZE", "2"), encoding="utf-8")
    first = run_pytest(tmp_path, "--vram-update")
    assert outcomes(first) == {"test_beyond", "test_nothing"}, first.stdout + first.stderr
    assert "cuda:0: peak < 12.00 MiB failed: it is 12,582,912 bytes" in first.stdout
    assert "test_memory.py:6 weights" in first.stdout  # the line that holds it
    assert "The test put nothing on a cuda device" in first.stdout
    golden = golden_path(module, "test_golden[cuda:1]")
    unused, used = json.loads(golden.read_text())["devices"]
    assert unused["context_bytes"] == 0
    assert used["peak_allocated_bytes"] == 2 * MIB * 4  # float32

    module.write_text(TESTS.replace("SIZE", "3"), encoding="utf-8")
    golden.unlink()
    second = run_pytest(tmp_path, "-k", "golden")
    assert outcomes(second) == {"test_golden[cuda:0]", "test_golden[cuda:1]"}
    assert ["peak", "allocated", "8.00", "12.00", "+4.00"] in [
        line.split() for line in second.stdout.splitlines()
    ]
    assert "missing golden file" in second.stdout


UNSURE = """
import pytest, torch

def loop():
    x = torch.rand(2**20, device="cuda").cos()
    while x.sum() < 3:
        x = x + x

@pytest.mark.vram(gpu="T4", peak="<= 1 GiB")
def test_at_most():
    loop()

@pytest.mark.vram(gpu="T4", peak=">= 1 MiB")
def test_at_least():
    loop()

@pytest.mark.vram(gpu="T4")
def test_golden():
    LOOP
"""


def test_a_bound_holds_only_where_nothing_that_decides_it_is_unknown(tmp_path: Path) -> None:
    module = tmp_path / "test_memory.py"
    module.write_text(UNSURE.replace("LOOP", "loop()"), encoding="utf-8")
    first = run_pytest(tmp_path, "--vram-update")
    assert outcomes(first) == {"test_at_most"}, first.stdout + first.stderr
    assert (
        "peak <= 1024.00 MiB is uncertain (at least), because test_memory.py:6 (while"
        in first.stdout
    )
    golden = json.loads(golden_path(module, "test_golden").read_text())
    assert golden["outcome"] == "at least"
    assert outcomes(run_pytest(tmp_path, "-k", "golden")) == set()
    text = "x = torch.rand(2**20, device='cuda').cos()"
    module.write_text(UNSURE.replace("LOOP", text), encoding="utf-8")
    # as much is needed, and it has become sure: what is written down is made by --vram-update
    run_pytest(tmp_path, "--vram-update", "-k", "golden")
    module.write_text(UNSURE.replace("LOOP", f"{text}\n    while x.sum() < 3: x = x + x"))
    third = run_pytest(tmp_path, "-k", "golden")
    assert outcomes(third) == {"test_golden"}
    assert "note: the later run is uncertain (at least), because test_memory.py (" in third.stdout


@pytest.mark.parametrize(
    ("mark", "complaint"),
    [
        ('gpu="T5"', "test_memory.py::test_it: No GPU named 'T5' in the catalogue."),
        ('peek="1 GiB"', "pytest.mark.vram has no argument peek"),
    ],
)
def test_a_mark_that_cannot_be_is_refused_before_anything_runs(mark: str, complaint: str) -> None:
    from types import SimpleNamespace

    from vramlab.testing.plugin import pytest_collection_modifyitems

    arguments = eval(f"dict({mark})")
    marker = SimpleNamespace(args=(), kwargs=arguments)
    item = SimpleNamespace(nodeid="test_memory.py::test_it", get_closest_marker=lambda name: marker)
    with pytest.raises(pytest.UsageError, match=complaint):
        pytest_collection_modifyitems([item])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("text", "size_bytes", "holds"),
    [
        ("<= 12 GiB", 12 * GIB, True),
        ("12 GiB", 12 * GIB + 1, False),
        ("< 1.5MiB", 3 * MIB // 2, False),
        ("== 512", 512, True),
        (">= 1 KiB", 1023, False),
    ],
)
def test_limits_are_read(text: str, size_bytes: int, holds: bool) -> None:
    assert Limit.parse("peak", text).holds(size_bytes) is holds


def test_a_mark_has_a_gpu_and_limits() -> None:
    request = Request.of((), {"gpu": "T4", "count": 2, "peak": "1 GiB"})
    assert request.gpu == {"name": "T4", "count": 2}
    assert request.limits == (Limit("peak", "<=", GIB),)
    with pytest.raises(VramlabError, match="has no argument 'T4'"):
        Request.of(("T4",), {})


def test_no_two_tests_have_one_golden_file() -> None:
    parameters = ("1", "-1", "1-", "a/b", "a-b", "a:b", "a--b", "a b", "[a]", "")
    names = [f"test_f[{each}]" for each in parameters]
    names += ["test_f", "TestA::test_f", "test_a::test_f", "test_f-1", "test_f::1", "TestA[test_f]"]
    assert len({golden_path(Path("test_x.py"), name) for name in names}) == len(names)
