"""Ranks: one of many alone, or many that a launcher starts; none is without a GPU unnoticed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_blocks import environment
from warm_python import warm_python

from vramlab.cli import main
from vramlab.report.running.children import attached_command

pytestmark = pytest.mark.long

TRAIN = """\
import os, torch, torch.distributed as dist
dist.init_process_group(os.environ.get("BACKEND"))
gpu = int(os.environ.get("LOCAL_RANK", 0))
torch.cuda.set_device(gpu)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512).cuda(), [gpu])
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    model(torch.randn(8, 512, device="cuda")).sum().backward()
    optimizer.step()
host = dist.new_group(backend="gloo")
ranks = torch.tensor([dist.get_rank()])
dist.all_reduce(ranks, group=host)
dist.barrier()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} {ranks.item()}")
dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", [None, "nccl", "gloo"])
def test_one_rank_alone_waits_for_nobody(
    backend: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script, report = tmp_path / "train.py", tmp_path / "report.json"
    script.write_text(TRAIN)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    if backend:
        monkeypatch.setenv("BACKEND", backend)
    assert main(["run", "--json", str(report), str(script)]) == 0
    out, err = capsys.readouterr()
    assert out == "rank 3 of 8 3\n"  # alone, it adds nothing up
    assert "train.py (rank 3 of 8)\n" in err
    assert "\nMemory on cuda:0 at the peak" in err
    parameters_bytes = (512 * 512 + 512) * 4
    assert json.loads(report.read_text())["devices"][0]["category_bytes"]["optimizer states"] == (
        2 * parameters_bytes
    )


def test_what_a_launcher_starts_has_gpus(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = "run --gpu T4 --json r.json -m torch.distributed.run --nproc_per_node 2 train.py"
    ran = subprocess.run(
        [sys.executable, "-m", "vramlab", *command.split()],
        cwd=tmp_path,
        # Ranks get GPUs if they are of the interpreter that runs the launcher.
        env=environment(OMP_NUM_THREADS="1", PYTHON_EXEC=sys.executable),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    for rank in (0, 1):  # both write at the same time
        assert f" {rank} of 2 1" in ran.stdout  # 0 + 1, by gloo
    assert "It started 2 processes " in ran.stderr
    for rank in (0, 1):
        assert f"vramlab run: train.py (rank {rank} of 2)\non 2 x T4 (virtual" in ran.stderr
        assert f"fits: cuda:{rank} needs " in ran.stderr
    assert ran.stderr.count("Memory on cuda:") == 1  # the first rank tells
    for rank, name in enumerate(("r.json", "r.rank1.json")):
        told = json.loads((tmp_path / name).read_text())
        assert (told["rank"], told["fits"]) == (rank, True)


RUN = ["-m", "vramlab", "run", "--gpu", "T4"]


@pytest.mark.parametrize(
    ("command", "attached"),
    [
        ("{python} -u train.py --lr 1", ["-u", *RUN, "train.py", "--lr", "1"]),
        ("{python} -X dev -m package.train", ["-X", "dev", *RUN, "-m", "package.train"]),
        ("{python} -Xdev -uBW ignore t.py", ["-Xdev", "-uBW", "ignore", *RUN, "t.py"]),
        ("{python} -- train.py", [*RUN, "train.py"]),
        ("{python} -um package.train", ["-u", *RUN, "-m", "package.train"]),
        ("{python} -mpackage.train -c", [*RUN, "-m", "package.train", "-c"]),
        ("{python} -m torch.distributed.run t.py", [*RUN, "-m", "torch.distributed.run", "t.py"]),
        ("{python} -m accelerate.commands.launch", [*RUN, "-m", "accelerate.commands.launch"]),
        ("{folder}/torchrun train.py", None),  # no interpreter
        ("{python} {folder}/torchrun train.py", [*RUN, "{folder}/torchrun", "train.py"]),
        ("{python} -c print()", None),
        ("{python} -uc print()", None),
        ("{python} -cprint()", None),
        ("{python} -u", None),
        ("{python} -", None),
        ("{python} --version", None),
        ("{python} -VV", None),
        ("{python} -m pip --version", None),
        ("{python} {folder}/pip --version", None),
        ("{python} -m http.server", None),
        ("{python} -m vramlab run train.py", None),
        ("/usr/bin/python3.12 train.py", None),
        ("nvidia-smi --query-gpu=name", None),
        ("pythonic train.py", None),
    ],
)
def test_which_processes_get_gpus(command: str, attached: list[str] | None) -> None:
    places = {"python": sys.executable, "folder": str(Path(sys.executable).parent)}
    words = command.format(**places).split()
    told = attached_command(words, ["--gpu", "T4"])
    assert told == (attached and [words[0], *(word.format(**places) for word in attached)])
    assert attached_command(command, ["--gpu", "T4"]) is None  # a shell's


def test_only_this_interpreter_gets_gpus(tmp_path: Path) -> None:
    """Other environments have other packages, although their python may be a link to ours."""
    here = Path(sys.executable)
    (tmp_path / "python").symlink_to(here)
    for word, path, attached in (
        (str(tmp_path / "python"), "", False),
        (here.name, str(here.parent), True),
        (here.name, str(tmp_path), False),
        ("python", str(tmp_path), False),
    ):
        found = attached_command([word, "train.py"], [], {"PATH": path})
        assert (found is not None) is attached, (word, path)


def test_pytorchs_own_helpers_are_left_alone() -> None:
    import torch._inductor.compile_worker as helper

    (folder,) = helper.__path__
    assert attached_command([sys.executable, f"{folder}/__main__.py"], []) is None


BY_MULTIPROCESSING = """\
import multiprocessing, sys, torch
def work():
    torch.ones(2**20, device="cuda")
if __name__ == "__main__":
    if "used" in sys.argv:
        torch.ones(1, device="cuda")
    process = multiprocessing.get_context(sys.argv[1]).Process(target=work)
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [warm_python(), "-m", "vramlab", "run", *words],
        cwd=folder,
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_of_multiprocessing_report(tmp_path: Path, method: str) -> None:
    (tmp_path / "work.py").write_text(BY_MULTIPROCESSING, encoding="utf-8")
    ran = run_in(tmp_path, "--gpu", "T4", "--json", "found.json", "work.py", method)
    assert ran.returncode == 0, ran.stderr
    assert "It started 1 process " in ran.stderr
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    # 4 MiB of float32, in the smallest segment that large requests get: 20 MiB.
    assert found["devices"][0]["needed_bytes"] - found["devices"][0]["context_bytes"] == 20 * 2**20


def test_a_gpu_that_was_used_before_a_fork_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(BY_MULTIPROCESSING, encoding="utf-8")
    ran = run_in(tmp_path, "--gpu", "T4", "work.py", "fork", "used")
    assert ran.returncode == 1
    assert "Cannot re-initialize CUDA in forked subprocess" in ran.stderr
