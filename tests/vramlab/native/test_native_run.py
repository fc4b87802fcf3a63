"""`vramlab run --engine native`: the report of a virtual GPU, of PyTorch's own allocator.

Needs `vramlab native setup` for the installed PyTorch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramlab import catalogue, native
from vramlab.cli import main
from vramlab.native.builds import Build
from vramlab.native.choice import choose

pytestmark = pytest.mark.long

PROGRAM = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
while True:
    loss = model(torch.randn(64, 512, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
"""


@pytest.fixture(scope="module")
def build() -> Build:
    """What is set up here."""
    try:
        found = choose("native").build
    except native.NativeEngineError as error:
        pytest.skip(str(error))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def reports(build: Build, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Reports of two steps, by engine, and what the program itself printed."""
    folder = tmp_path_factory.mktemp("run")
    script = folder / "train.py"
    script.write_text(PROGRAM)
    found = {}
    for engine in ("portable", "native"):
        path = folder / f"{engine}.json"
        words = ["--engine", engine, "--torch-version", build.release, "--gpu", "T4"]
        status = main(["run", *words, "--steps", "2", "--json", str(path), str(script)])
        assert status == 0
        found[engine] = json.loads(path.read_text())
    return found


ZEROS = """
import torch
kinds = (torch.bool, torch.int8, torch.int32, torch.int64, torch.float32, torch.float64)
for kind in (*kinds, torch.bfloat16, torch.float16, torch.complex64):
    x = torch.ones(100, dtype=kind).cuda()
    assert x.cpu().ne(0).all()
    assert not x.zero_().cpu().ne(0).any()
torch.ones(512, dtype=torch.uint8).cuda()
assert not torch.empty(0, device="cuda").any().item()  # in the block that was freed
none = torch.linalg.cholesky(torch.empty(0, 3, 3, device="cuda"))
assert none.shape == (0, 3, 3)
"""


def test_what_a_kernel_fills_with_zeros_reads_as_zeros(build: Build, tmp_path: Path) -> None:
    """PyTorch looks for an error among those of no matrices, where one was said to be."""
    (tmp_path / "zeros.py").write_text(ZEROS)
    assert native.run(build, [str(tmp_path / "zeros.py")], catalogue.find("T4")) == (0, [])


def test_a_gpu_without_room_for_the_first_tensor_was_used(build: Build, tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text("import torch\ntorch.empty(16 << 30, device='cuda')\n")
    path = tmp_path / "report.json"
    words = ["--engine", "native", "--torch-version", build.release, "--gpu", "T4"]
    assert main(["run", *words, "--json", str(path), str(tmp_path / "large.py")]) == 1
    told = json.loads(path.read_text())
    assert told["fits"] is False
    (device,) = told["devices"]
    context_bytes = catalogue.find("T4").context_bytes
    assert (device["context_bytes"], device["peak_reserved_bytes"]) == (context_bytes, 0)
    (failed,) = told["out_of_memory"]
    assert failed["segment_bytes"] == 4 * (16 << 30)  # float32, of a GPU with 15 GiB


RANK = """
import os, torch
import torch.distributed as dist
dist.init_process_group("nccl")
host = dist.new_group(backend="gloo")
torch.cuda.set_device(0)
part = torch.ones(1024, device="cuda")
parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
dist.all_gather(parts, part)
dist.barrier(host)
dist.destroy_process_group()
"""


def test_one_rank_of_many_waits_for_nobody(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its part and eight others of 4 KiB."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    (tmp_path / "rank.py").write_text(RANK)
    path = tmp_path / "report.json"
    words = ["--engine", "native", "--torch-version", build.release, "--gpu", "T4"]
    limits = ["--seconds", "60", "--json", str(path)]
    assert main(["run", *words, *limits, str(tmp_path / "rank.py")]) == 0
    told = json.loads(path.read_text())
    assert not told["stopped"]  # it came to its end, and not to that of its time
    (device,) = told["devices"]
    assert device["peak_allocated_bytes"] >= 9 * 4096


STARTED = """
import sys, torch, multiprocessing
from concurrent.futures import ProcessPoolExecutor
def work(rank):
    torch.ones(1024, device="cuda")
if __name__ == "__main__":
    how, method = sys.argv[1:]
    context = multiprocessing.get_context(method)
    if how == "ranks":
        torch.multiprocessing.start_processes(work, nprocs=2, start_method=method)
    elif how == "pool":
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            pool.submit(work, 0).result()
    else:
        data = torch.utils.data.TensorDataset(torch.ones(4))
        for _ in torch.utils.data.DataLoader(data, num_workers=2, multiprocessing_context=context):
            pass
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize(("how", "reports"), [("ranks", 2), ("pool", 1), ("workers", 0)])
def test_processes_that_use_the_gpu_report(
    how: str,
    reports: int,
    method: str,
    build: Build,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Each has a tensor of 4 KiB in a segment of 2 MiB; workers that load data have none."""
    (tmp_path / "started.py").write_text(STARTED)
    path = tmp_path / "report.json"
    words = ["--engine", "native", "--torch-version", build.release, "--gpu", "T4"]
    assert (
        main(["run", *words, "--json", str(path), str(tmp_path / "started.py"), how, method]) == 0
    )
    assert capfd.readouterr().err.count("fits: cuda:0 needs") == reports
    if reports:  # that of the first one to end
        (device,) = json.loads(path.read_text())["devices"]
        assert (device["peak_allocated_bytes"], device["peak_reserved_bytes"]) == (4096, 2**21)


RANKS = """
import os, torch
import torch.distributed as dist
dist.init_process_group("nccl")
gpu = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(gpu)
total = torch.ones(1024, device="cuda")
dist.all_reduce(total)
print(f"rank {dist.get_rank()} has {torch.cuda.memory_allocated(gpu)} B", flush=True)
dist.destroy_process_group()
"""


def test_each_rank_that_torchrun_starts_has_a_gpu(
    build: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A tensor of 4 KiB each; the second one's GPU is no other's."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PYTHON_EXEC", raising=False)  # a Python that has another torch already
    (tmp_path / "ranks.py").write_text(RANKS)
    words = ["--engine", "native", "--torch-version", build.release, "--gpu", "T4"]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    assert main(["run", *words, *torchrun, str(tmp_path / "ranks.py")]) == 0
    out, err = capfd.readouterr()
    for rank in (0, 1):  # both write at the same time
        assert f"rank {rank} has 4096 B" in out
        assert f"fits: cuda:{rank} needs" in err


def test_both_engines_give_the_same_report(reports: dict[str, Any]) -> None:
    """But for the lines of the backward pass, which the native engine does not know."""
    portable, own = (reports[engine]["devices"][0] for engine in ("portable", "native"))
    for field in set(own) - {"lines"}:
        assert own[field] == portable[field], field
    assert sum(line["size_bytes"] for line in own["lines"]) == own["allocated_bytes"]


def test_the_report_says_what_ran(reports: dict[str, Any]) -> None:
    report = reports["native"]
    assert (report["engine"], report["gpu"], report["stopped"]) == ("native", "T4", True)
    assert "+cu" in report["torch_version"]


def test_recordings_of_the_engine_do_not_lie_among_measured_ones(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["record", "--engine", "native", "--gpu", "H200"]) == 2
    assert "--out FOLDER" in capsys.readouterr().err
    assert main(["record", "--engine", "native", "--out", str(tmp_path)]) == 2
    assert "--gpu NAME" in capsys.readouterr().err
