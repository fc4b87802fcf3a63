"""`vramlab run`: scripts run unmodified, and the report is right to the byte."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from vramlab.cli import main
from vramlab.units import MIB

SCRIPTS = Path(__file__).parents[2] / "scripts"
MLP = str(SCRIPTS / "train_mlp.py")


class Run:
    """One run of the command, in this process.

    Attributes:
        status: the exit status.
        out, err: what was printed.
        report: the JSON.
    """

    def __init__(
        self, capsys: pytest.CaptureFixture[str], folder: Path, *words: str, **options: str
    ) -> None:
        path = folder / "report.json"
        flags = [word for pair in options.items() for word in (f"--{pair[0]}", pair[1])]
        self.status = main(["run", *flags, "--json", str(path), *words])
        self.out, self.err = capsys.readouterr()
        self.report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    @property
    def device(self) -> dict[str, Any]:
        device: dict[str, Any] = self.report["devices"][0]
        return device


def script(folder: Path, text: str) -> str:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_peak_is_explained_to_the_byte(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(capsys, tmp_path, MLP, "--width", "1024", "--batch", "256", gpu="T4")
    assert run.status == 0
    # Linear(1024, 4096) and back: 2 weights of 16 MiB, biases of 4096 and 1024 float32.
    parameters_bytes = 2 * 16 * MIB + (4096 + 1024) * 4
    # cuBLAS's, of the forward and of the backward thread; until 2.11 cuBLASLt's, for biases. From
    # 2.15 on they are given back after each product.
    workspaces_bytes = 2 * 8_519_680 + (MIB if torch.__version__ < (2, 12) else 0)
    assert run.device["category_bytes"] == {
        "parameters": parameters_bytes,
        "optimizer states": 2 * parameters_bytes,  # exp_avg, exp_avg_sq; steps are on the host
        "gradients": parameters_bytes,
        "inputs": 256 * 1024 * 4,
        # The peak is in optimizer.step(): square roots of exp_avg_sq, of all at once; and the loss,
        # which has the memory of all its elements, lives by its name.
        "temporaries": parameters_bytes + 256 * 1024 * 4,
    } | ({"workspaces": workspaces_bytes} if torch.__version__ < (2, 15) else {})
    assert run.device["allocated_bytes"] == sum(run.device["category_bytes"].values())


def test_it_agrees_with_what_torch_tells_the_script(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(capsys, tmp_path, MLP, gpu="L4")
    told = dict(line.split() for line in run.out.splitlines() if line.startswith("max_memory"))
    assert int(told["max_memory_allocated"]) == run.device["peak_allocated_bytes"]
    assert int(told["max_memory_reserved"]) == run.device["peak_reserved_bytes"]
    needed_bytes = run.device["peak_reserved_bytes"] + run.device["context_bytes"]
    assert run.device["needed_bytes"] == needed_bytes
    assert run.report["fits"] is True


def test_the_peak_does_not_depend_on_the_counters_that_a_script_resets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = script(
        tmp_path,
        "import torch\nx = torch.empty(30 * 2**20, dtype=torch.uint8, device='cuda')\ndel x\n"
        "torch.cuda.empty_cache()\ntorch.cuda.reset_peak_memory_stats()\n"
        "y = torch.empty(2**20, dtype=torch.uint8, device='cuda')\n",
    )
    run = Run(capsys, tmp_path, program)
    assert run.device["peak_allocated_bytes"] == 30 * MIB
    assert run.device["peak_reserved_bytes"] == 30 * MIB
    assert run.device["category_bytes"] == {"inputs": 30 * MIB}


@pytest.mark.parametrize(
    ("text", "by_size"),
    [
        ("torch.cuda.get_device_capability()", False),
        ("torch.cuda.mem_get_info()", True),
        ("torch.cuda.get_device_properties(0).total_memory", True),
        ("torch.cuda.set_per_process_memory_fraction(0.5)", True),
    ],
)
def test_what_a_run_depends_on_is_told(
    text: str, by_size: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = script(tmp_path, f"import torch\nx = torch.ones(9, device='cuda')\n{text}\n")
    facts = Run(capsys, tmp_path, program).report["gpu_facts"]
    assert ("total_bytes" in facts) is by_size
    assert "l2_cache_bytes" not in facts


def test_the_scripts_output_is_its_own_and_reads_are_listed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(capsys, tmp_path, MLP, "--steps", "2", gpu="T4")
    assert run.out.splitlines()[:2] == ["step 0 loss nan", "step 1 loss nan"]
    assert "fits: cuda:0 needs" in run.err
    line = 'train_mlp.py:35: print(f"step {step} loss {loss.item():.4f}")'
    assert run.report["value_reads"] == {line: {"item()": 2}}
    assert f"  {line}\n      item() 2 times\n" in run.err


def test_reads_can_be_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = Run(capsys, tmp_path, MLP, **{"on-value": "error"})
    assert run.status == 1
    assert "The program failed: NoValuesError: item() of a torch.float32 tensor" in run.err
    assert run.report["value_reads"] == {}
    assert run.device["category_bytes"]["parameters"] == 2 * 16 * MIB + (4096 + 1024) * 4


def test_lines_of_the_forward_pass_answer_for_their_gradients(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = script(
        tmp_path,
        "import torch\n"
        "x = torch.empty(2**20, device='cuda', requires_grad=True)\n"  # line 2: 4 MiB
        "y = x[: 2**19]\n"
        "z = y * 2\n"  # line 4: 2 MiB, freed with its gradient
        "z.backward(torch.empty(2**19, device='cuda'))\n",
    )
    run = Run(capsys, tmp_path, program)
    lines = {use["line"]["line"]: use for use in run.device["lines"]}
    # At the peak the slice's backward has made the whole gradient of x (4 MiB, booked on the slice)
    # from the gradient of y (2 MiB, booked on the multiplication); z itself is still there.
    assert {line: use["size_bytes"] for line, use in lines.items()} == {
        2: 4 * MIB,
        3: 4 * MIB,
        4: 2 * MIB + 2 * MIB,
        5: 2 * MIB,
    }


@pytest.mark.parametrize(
    ("text", "status"),
    [("import sys; sys.exit(3)", 3), ("raise ValueError('words')", 1), ("", 0)],
)
def test_the_exit_status_is_the_scripts(
    text: str, status: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(capsys, tmp_path, script(tmp_path, text))
    assert run.status == run.report["status"] == status
    assert "The program used no GPU" in run.err


def test_a_program_that_fails_is_measured_until_then(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = script(
        tmp_path,
        "import torch\nx = torch.empty(1000, device='cuda')\nraise ValueError('two\\nlines')\n",
    )
    run = Run(capsys, tmp_path, program)
    assert run.err.startswith("Traceback (most recent call last):\n")
    assert (
        "The program failed: ValueError: two\nThe numbers below cover the time until then.\n"
        in run.err
    )
    assert "until then: cuda:0 needs 439.00 MiB of 39.39 GiB" in run.err  # a segment, the context
    assert run.report["fits"] is None
    assert run.report["error"] == "ValueError: two\nlines"
    assert run.device["allocated_bytes"] == 4096  # 4,000 rounded up to a multiple of 512


def test_an_interrupted_program_is_measured_until_then(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = script(
        tmp_path, "import torch\nx = torch.empty(1000, device='cuda')\nraise KeyboardInterrupt\n"
    )
    run = Run(capsys, tmp_path, program)
    assert run.status == 130  # 128 + SIGINT
    assert "The program was interrupted. The numbers below cover the time until then.\n" in run.err
    assert run.device["allocated_bytes"] == 4096


def test_out_of_memory_is_the_one_that_the_user_would_have_met(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(capsys, tmp_path, MLP, "--width", "16384", gpu="T4", steps="3")
    assert run.status == 1
    # 4 GiB a weight: parameters and gradients of 16 GiB do not fit into 14.74 GiB. The first weight
    # comes last in the backward pass: its gradient is the one that does not fit.
    assert "does NOT fit: out of memory on cuda:0 in the backward pass of " in run.err
    assert "train_mlp.py:16 Network.forward: hidden = torch.relu(self.first(x))" in run.err
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has" in run.err
    assert "vramlab/gpu" not in run.err  # the traceback is the one of a real GPU
    commands = [line.split() for line in run.err.splitlines() if line.startswith("  vramlab ")]
    options = ["--gpu", "T4", "--steps", "3", "--snapshot", "snapshot.pickle"]
    assert commands[0][:8] == ["vramlab", "run", *options]
    assert commands[0][-2:] == ["--width", "16384"]  # the program's own words
    assert commands[1][:3] == ["vramlab", "explain", "snapshot.pickle"]
    assert commands[2][:6] == ["vramlab", "run", "--gpu", "all", "--steps", "3"]
    assert run.report["fits"] is False
    (failed,) = run.report["out_of_memory"]
    assert (failed["count"], failed["segment_bytes"], failed["in_backward"]) == (1, 4 << 30, True)
    assert run.device["at_out_of_memory"] is True
    held = run.device["category_bytes"]
    parameters_bytes = 2 * (4 << 30) + (4 * 16384 + 16384) * 4
    assert held["parameters"] == parameters_bytes
    # The gradients of the second layer, which is done.
    assert held["gradients"] == (4 << 30) + 16384 * 4


def test_a_program_may_catch_out_of_memory_and_go_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = script(
        tmp_path,
        "import torch\n"
        "w = torch.randn(1024, 1024, device='cuda', requires_grad=True)\n"
        "def forward(batch):\n"
        "    x = torch.empty(batch, 1024, device='cuda')\n"
        "    for _ in range(8):\n"
        "        x = x @ w\n"
        "    return x\n"
        "batch = 2**20\n"
        "while True:\n"
        "    try:\n"
        "        forward(batch).backward(torch.empty(batch, 1024, device='cuda'))\n"
        "        break\n"
        "    except torch.cuda.OutOfMemoryError:\n"
        "        batch //= 4\n",
    )
    run = Run(capsys, tmp_path, program, gpu="T4")
    assert run.status == 0
    assert run.report["fits"] is True
    # Batches of 2**20 rows take 4 GiB a matrix, of which 3 fit; of 2**18 rows 10 matrices of 1 GiB.
    assert "Out of memory once on cuda:0, but the program caught it; last at" in run.err
    (failed,) = run.report["out_of_memory"]
    assert (failed["count"], failed["segment_bytes"], failed["line"]["line"]) == (1, 4 << 30, 6)
    # The highest moment was in the forward pass that failed. Autograd had saved the first product;
    # the second was to be saved by the op that failed.
    assert run.device["category_bytes"]["inputs"] == (4 << 30) + 4 * MIB
    assert run.device["category_bytes"]["activations"] == 4 << 30
    # From 2.15 on the product beside it took a workspace for itself alone.
    workspace_bytes = 0 if torch.__version__ < (2, 15) else 8_519_680
    assert run.device["category_bytes"]["temporaries"] == (4 << 30) + workspace_bytes


def test_steps_stop_the_program_and_let_it_clean_up(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = script(
        tmp_path,
        "import torch\n"
        "w = torch.ones(4, device='cuda', requires_grad=True)\n"
        "optimizer = torch.optim.SGD([w], lr=0.1)\n"
        "try:\n"
        "    for step in range(100):\n"
        "        try:\n"
        "            w.sum().backward()\n"
        "            optimizer.step()\n"
        "        except Exception:\n"
        "            print('caught')\n"
        "        print('step', step)\n"
        "finally:\n"
        "    print('clean')\n",
    )
    run = Run(capsys, tmp_path, program, steps="3")
    assert run.status == 0
    assert run.out == "step 0\nstep 1\nclean\n"
    assert run.report["stopped"] is True
    assert run.report["error"] is None


def test_everything_that_training_scripts_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = Run(capsys, tmp_path, str(SCRIPTS / "train_everything.py"), str(tmp_path), gpu="T4")
    assert run.status == 0, run.err
    # The scale of a healthy run: 2**16, as 6 steps are too few to grow.
    assert run.out.splitlines()[-1].startswith("done 65536.0 [")
    assert (tmp_path / "best.pt").stat().st_size < 100_000
    assert [str(warning.message) for warning in caught if "torch.compile" in str(warning.message)]
    reads = run.report["value_reads"]
    assert {what for line in reads.values() for what in line} == {
        "item()",
        "numpy()",
        "saving (shapes only)",
    }


def test_modules_run_too_with_options_of_their_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told_to_run.py").write_text(
        "import sys, torch\nprint(sys.argv[1:], torch.cuda.device_count())\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["-m", "told_to_run", "--gpu", "X", "-m", "--count=9"]
    run = Run(capsys, tmp_path, *words, gpu="T4", count="2")
    assert run.out == "['--gpu', 'X', '-m', '--count=9'] 2\n"
    assert "vramlab run: -m told_to_run --gpu X -m --count=9\non 2 x T4" in run.err


def test_rules_and_settings_can_be_chosen(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Run(
        capsys,
        tmp_path,
        MLP,
        **{"torch-version": "1.13", "alloc-conf": "expandable_segments:True"},
    )
    assert run.report["torch_version"] == "1.13"
    assert "workspaces" not in run.device["category_bytes"]  # not in the allocator before 2.0
    # Expandable segments grow by pages of 2 MiB (small) and 20 MiB (large).
    assert run.device["peak_reserved_bytes"] % (2 * MIB) == 0


def test_the_run_is_replayed_under_other_allocator_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = tmp_path / "trials.json"
    words = ["--gpu", "T4", "--engine", "portable", "--try-allocator", "--json", str(report)]
    assert main(["run", *words, MLP, "--width", "64", "--batch", "8"]) == 0
    data = json.loads(report.read_text())
    own, *others = data["allocator_trials"]
    assert (own["settings"], own["is_own"], own["fits"]) == ("", True, True)
    assert own["reserved_bytes"] == data["devices"][0]["peak_reserved_bytes"]
    assert "expandable_segments:True" in [each["settings"] for each in others]
    assert "(defaults), this run" in capsys.readouterr().err


def test_only_one_run_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--gpu", "T4,L4", "--try-allocator", MLP]) == 2
    assert "--try-allocator cannot be combined" in capsys.readouterr().err


def test_a_snapshot_is_written_for_the_memory_viz_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "snapshot.pickle"
    run = Run(capsys, tmp_path, MLP, snapshot=str(path))
    with path.open("rb") as file:
        snapshot = pickle.load(file)
    allocations = [e for e in snapshot["device_traces"][0] if e["action"] == "alloc"]
    assert run.status == 0
    assert any(
        frame["filename"] == MLP and frame["name"] == "Network.forward"
        for event in allocations
        for frame in event["frames"]
    )


def test_what_cannot_be_run_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = Run(capsys, tmp_path, str(tmp_path / "missing.py"))
    assert missing.status == 2
    assert missing.err.startswith(f"vramlab: can't open file '{tmp_path / 'missing.py'}': no such")
    notebook = tmp_path / "lesson.ipynb"
    notebook.write_text("{}")
    for path, why in ((tmp_path, "is a folder without"), (notebook, "is a notebook: convert it")):
        refused = Run(capsys, tmp_path, str(path))
        assert refused.status == 2
        assert refused.err.startswith(f"vramlab: '{path}' {why}")
    folder = tmp_path / "missing"
    unwritable = Run(capsys, tmp_path, MLP, snapshot=str(folder / "snapshot.pickle"))
    assert unwritable.status == 2
    assert unwritable.err.startswith(f"vramlab: can't write '{folder}")
    unknown = Run(capsys, tmp_path, MLP, gpu="T5")
    assert unknown.status == 2
    assert unknown.err.startswith("vramlab: No GPU named 'T5' in the catalogue. Closest: T4. ")
    assert len(unknown.err.splitlines()) == 1
    with pytest.raises(SystemExit) as leaving:
        main(["run"])
    assert leaving.value.code == 2
    assert "missing a script (or -m and a module)" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", "--count", "0", MLP])
    assert "invalid number '0': use an integer of at least 1" in capsys.readouterr().err
