"""The program that methods are tried on, and the rule that makes words of what they do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from vramlab import VirtualGPU
from vramlab_course.experiments import FigureVerdict
from vramlab_course.lessons.l18_memory_against_speed.experiment import (
    LARGE,
    SMALL,
    MethodReading,
    MethodTable,
    Setting,
    read_step,
)

TINY = Setting(4, width=64, layers=1, length=16, vocabulary=32)


def read(setting: Setting, gpu: str = "T4") -> MethodReading:
    with VirtualGPU(gpu):
        return read_step(setting)


def test_flops_of_the_tiny_program() -> None:
    tokens = 4 * 16
    # 12 squares of the width and the head, forward 1, backward 2; the scores' products of attention
    # forward 2, backward 5: 4 sequences, 16 x 16 scores, 64 numbers each, 2 FLOPs
    layers = 3 * 2 * tokens * (12 * 64**2 + 64 * 32)
    attention = 7 * 2 * 4 * 16 * 16 * 64
    assert read(TINY).needed.flops == layers + attention


def test_methods_change_flops_as_they_should() -> None:
    plain = read(TINY).needed.flops
    assert read(replace(TINY, micro_batches=4)).needed.flops == plain
    assert read(replace(TINY, autocast=True)).needed.flops == plain
    assert read(replace(TINY, optimizer="sgd")).needed.flops == plain
    assert plain < read(replace(TINY, checkpointing=True)).needed.flops <= plain * 4 / 3


def test_sgd_moves_and_holds_less_than_adamw() -> None:
    adamw, sgd = read(TINY), read(replace(TINY, optimizer="sgd"))
    assert sgd.peak_bytes <= adamw.peak_bytes - 2 * adamw.parameters_bytes
    assert sgd.needed.moved_bytes < adamw.needed.moved_bytes


def test_activations_on_the_host_travel_twice_and_leave_room() -> None:
    # Activations decide the peak: of 1,024 tokens, some twenty tensors of 256 KiB in the layer.
    setting = replace(TINY, batch=64, optimizer="sgd")
    plain, on_host = read(setting), read(replace(setting, saved_on_host=True))
    assert (plain.host_bytes, plain.trips_s) == (0, 0.0)
    assert on_host.peak_bytes < plain.peak_bytes
    assert on_host.needed.flops == plain.needed.flops
    there_and_back, rest = divmod(on_host.host_bytes, 2)
    assert rest == 0 < there_and_back
    # A T4 has 16 lanes of PCI Express 3.0: 8 GT/s x 128/130 bits.
    assert on_host.trips_s == pytest.approx(2 * there_and_back / (16 * 8e9 / 8 * 128 / 130))
    assert on_host.seconds_per_sequence >= on_host.trips_s / 64


def test_what_else_is_there_is_not_counted() -> None:
    with VirtualGPU("T4"):
        alone = read_step(TINY).peak_bytes
        kept = torch.zeros(10**6, device="cuda")
        assert read_step(TINY).peak_bytes == alone
        assert kept.is_cuda


def test_no_time_passes_on_a_virtual_gpu() -> None:
    assert read(TINY).elapsed_s is None


def test_a_difference_that_nothing_explains_stays_unexplained() -> None:
    names = ("Gradient accumulation", "Gradient checkpointing", "Mixed precision training")
    names += ("Batch size", "Optimizer choice", "DataLoader")
    nothing = {(name, batch): 0.0 for name in names for batch in (SMALL, LARGE)}
    table = MethodTable(nothing, nothing, 0.5)
    verdicts = {finding.part: finding.verdict for finding in table.findings()}
    assert verdicts["Gradient checkpointing, speed"] is FigureVerdict.EQUAL
    assert verdicts["Gradient checkpointing, memory"] is FigureVerdict.UNEXPLAINED
    assert verdicts["DataLoader, speed"] is FigureVerdict.EXPLAINED
    assert verdicts["DeepSpeed ZeRO, memory"] is FigureVerdict.QUOTED
