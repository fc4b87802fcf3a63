"""Recorded step times: the step that is found, its throughput, and what its table shows."""

from __future__ import annotations

from vramlab_course.experiments.step_times import StepTime, step_time, step_times_table


def test_accumulation_takes_longer_for_the_same_tokens() -> None:
    whole = step_time("bert-large", precision="float32")
    pieces = step_time("bert-large", precision="float32", accumulate=4)
    assert whole.tokens == pieces.tokens == 4 * 512
    assert (whole.milliseconds, pieces.milliseconds) == (114.015, 245.013)
    assert whole.peak_bytes is not None
    assert pieces.peak_bytes is not None
    assert whole.peak_bytes > pieces.peak_bytes


def test_of_two_recordings_the_later_one_counts() -> None:
    assert step_time("gpt2", batch=8, precision="bf16").milliseconds == 57.106


def test_the_table_has_throughput_and_steps_that_do_not_fit() -> None:
    eager = step_time("llama-1b", sequence=8192, attention="eager")
    table = step_times_table("Two", {"a": StepTime(1, 500, 250.0, 3 * 2**29), "b": eager})
    assert table.rows == (
        ("a", "250 ms", "2,000", "1.5 GiB"),  # 500 tokens in a quarter of a second
        ("b", "out of memory", "", ""),
    )
    assert table.notes[0].startswith("Measured on a real NVIDIA H100 80GB HBM3, PyTorch 2.11.0")
