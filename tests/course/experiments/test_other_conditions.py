"""Experiments under conditions that the documents did not have: GPUs, PyTorches, parameters."""

from __future__ import annotations

import pytest

import vramlab
from vramlab.units import MIB
from vramlab_course import experiments
from vramlab_course.experiments import FigureVerdict, Outcome


def run_on(gpu: str, name: str, torch_version: str | None = None, **parameters: object) -> Outcome:
    with vramlab.VirtualGPU(gpu, torch_version=torch_version, alloc_conf=""):
        return experiments.run(name, **parameters)


@pytest.mark.parametrize(
    ("gpu", "torch_version"),
    [
        # Workspaces depend on both, on Hopper.
        *(("H100", version) for version in ("1.13", "2.0", "2.11", "2.13")),
        *((gpu, "2.13") for gpu in ("T4", "V100-16GB", "A100-40GB", "RTX-4090", "B200")),
        ("T4", "1.13"),
    ],
)
def test_the_training_step_is_predicted_and_explained(gpu: str, torch_version: str) -> None:
    outcome = run_on(gpu, "three-linear", torch_version)
    for stage in outcome.result.stages:
        for expectation in stage.expectations:
            assert stage.measured_bytes(expectation.quantity) == expectation.predicted_bytes
    assert {f.verdict for f in outcome.findings} <= {FigureVerdict.EQUAL, FigureVerdict.EXPLAINED}


def test_hopper_explains_its_workspaces() -> None:
    forward = run_on("H100", "three-linear", "2.13").finding("three-linear-forward-first")
    # 32 MiB instead of 8.125 MiB: 23.875 MiB
    assert forward.verdict is FigureVerdict.EXPLAINED
    assert forward.difference == 25_034_752
    assert [d.amount for d in forward.differences] == [25_034_752]


def test_an_a100_has_its_peak_elsewhere() -> None:
    peak = run_on("A100-40GB", "three-linear", "2.13").finding("three-linear-peak")
    # Where bias 2 is summed: 284.2783203125 MiB held, 80 MiB and 512 B of buffers.
    assert peak.measured == 381_974_016  # 364.27880859375 MiB
    assert peak.verdict is FigureVerdict.EXPLAINED
    assert sum(d.amount for d in peak.differences) == peak.difference == 4_198_912


@pytest.mark.parametrize("applications", [1, 3, 10])
def test_only_two_applications_give_the_documents_memory(applications: int) -> None:
    outcome = run_on("V100-16GB", "fp16-linear", "1.13", applications=applications)
    forward = outcome.finding("fp16-linear-forward")
    assert forward.measured == applications * 20 * MIB
    assert forward.verdict is FigureVerdict.EXPLAINED
    assert forward.difference == (applications - 2) * 20 * MIB
    # After the backward pass no number shows how often the layer was applied.
    assert outcome.finding("fp16-linear-after-backward").verdict is FigureVerdict.EQUAL


def test_other_gpus_do_not_give_the_documents_summary() -> None:
    outcome = run_on("A100-40GB", "fp16-linear-memory-summary", "1.13")
    freed = outcome.finding("fp16-linear-memory-summary", "Allocated memory, small_pool, Tot Freed")
    # Gradient of the loss 512, staging buffer 2048 (432 blocks x 4 B), semaphores 512: 3 KiB, not 2
    assert (freed.measured, freed.published) == (3, "2")
    assert freed.verdict is FigureVerdict.OTHER_CONDITIONS
    assert freed.note.endswith("here it is PyTorch 1.13, and 2560 B")


def test_with_several_layers_adamws_loop_holds_three() -> None:
    outcome = run_on("A100-40GB", "optimizer-step-peak", widths=(1024, 1024, 1024))
    extra = {finding.part: finding.measured for finding in outcome.findings}
    assert extra == {"loop": 3.0, "foreach": 2.0, "fused": 0.0}


def test_the_oom_needs_a_gpu_that_is_large_enough() -> None:
    with pytest.raises(RuntimeError, match="oom-anatomy needs 15,715,532,800 B that are free"):
        run_on("T4", "oom-anatomy")


def test_on_a_larger_gpu_ballast_holds_the_rest() -> None:
    outcome = run_on("A100-40GB", "oom-anatomy")
    assert outcome["one more"].error is not None
    verdicts = {f.part: f.verdict for f in outcome.findings}
    assert verdicts["tried to allocate"] is FigureVerdict.EQUAL
    assert verdicts["allocated"] is verdicts["reserved"] is FigureVerdict.EXPLAINED


def test_a_second_run_on_the_same_gpu_measures_the_same() -> None:
    with vramlab.VirtualGPU("RTX-3090", alloc_conf=""):
        first, second = (experiments.run("three-linear") for _ in range(2))
    assert first.result.stages == second.result.stages


def test_the_limit_on_memory_is_lifted_again() -> None:
    import torch

    with vramlab.VirtualGPU("A100-40GB", alloc_conf=""):
        experiments.run("fragment-800")
        assert torch.cuda.get_per_process_memory_fraction() == 1.0


def test_without_a_gpu_it_says_what_to_do() -> None:
    if vramlab.attached() is not None:
        pytest.skip("this machine has a GPU")
    with pytest.raises(RuntimeError, match=r"none is attached: call vramlab.attach\(\)"):
        experiments.run("three-linear")
