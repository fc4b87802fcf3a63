"""Least times of recorded operators: each by what it waits for, and all added up."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from vramlab import VirtualGPU, catalogue
from vramlab.measure import record_operators
from vramlab.measure.least_times import least_time

T4 = catalogue.find("T4")  # 320 GB/s, 8.1 TFLOPS, 65 in float16
A100 = catalogue.find("A100-40GB")


def test_a_product_waits_for_arithmetic_and_an_addition_for_memory() -> None:
    with VirtualGPU("T4"):
        a = torch.zeros(1024, 1024, device="cuda")
        with record_operators() as calls:
            (a @ a) + 1
    needed = least_time(calls.calls, T4)
    assert needed.flops == 2 * 1024**3
    assert needed.moved_bytes == (3 + 2) * 4 * 1024**2
    assert needed.compute_bound_seconds == 2 * 1024**3 / 8.1e12
    assert needed.memory_bound_seconds == 2 * 4 * 1024**2 / 320e9
    assert needed.seconds == needed.compute_bound_seconds + needed.memory_bound_seconds


def test_a_batch_of_one_waits_for_the_weight() -> None:
    with VirtualGPU("T4"):
        weight, x = torch.zeros(1024, 1024, device="cuda"), torch.zeros(1, 1024, device="cuda")
        with record_operators() as calls:
            functional.linear(x, weight)
    needed = least_time(calls.calls, T4)
    assert needed.compute_bound_seconds == 0
    assert needed.memory_bound_seconds == 4 * (1024 * 1024 + 2 * 1024) / 320e9


def test_the_dtype_decides_the_peak() -> None:
    with VirtualGPU("A100-40GB"):
        a = torch.zeros(4096, 4096, device="cuda")
        with record_operators() as calls:
            a @ a
        half = a.half()
        with record_operators() as half_calls:
            half @ half
    flops = 2 * 4096**3
    assert least_time(calls.calls, A100).seconds == flops / 19.5e12
    assert least_time(calls.calls, A100, tf32=True).seconds == flops / 156e12
    assert least_time(half_calls.calls, A100).seconds == flops / 312e12


def test_a_format_that_a_gpu_lacks_is_refused() -> None:
    with VirtualGPU("T4"):
        a = torch.zeros(64, 64, device="cuda", dtype=torch.bfloat16)
        with record_operators() as calls:
            a @ a
    with pytest.raises(ValueError, match="T4 has no units for bfloat16"):
        least_time(calls.calls, T4)


def test_an_optimizer_reads_and_writes_what_it_keeps() -> None:
    with VirtualGPU("T4"):
        weight = torch.nn.Parameter(torch.zeros(1024, 1024, device="cuda"))
        weight.grad = torch.zeros_like(weight)
        optimizer = torch.optim.AdamW([weight], fused=True)
        optimizer.step()
        with record_operators() as calls:
            optimizer.step()
    (step,) = [call for call in calls.calls if call.name == "aten._fused_adamw_"]
    # parameter, gradient (it may have to be unscaled) and two states are read and written; the
    # counter is read
    assert step.moved_bytes == 2 * 4 * 4 * 1024**2 + 4


def test_memory_that_nobody_fills_takes_no_time() -> None:
    with VirtualGPU("T4"):
        rows = torch.zeros(10, dtype=torch.long, device="cuda")
        table = torch.zeros(1000, 64, device="cuda")
        with record_operators() as calls:
            torch.empty(1000, device="cuda")
            functional.embedding(rows, table)
    # ten indices; ten rows read, and written
    assert least_time(calls.calls, T4).moved_bytes == 10 * 8 + 2 * 10 * 64 * 4
