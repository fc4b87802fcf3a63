"""The largest value that fits is found exactly, by few runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.sizing.largest import find_largest, with_value
from vramlab.sizing.runs import RunOutcome, UnusableRun
from vramlab.sizing.text import largest_as_dict, largest_table
from vramlab.units import GIB, MIB

L4 = catalogue.find("L4")


def needing(size_bytes: Callable[[int], int]) -> Callable[[GPUModel, Sequence[str]], RunOutcome]:
    """A program whose reserved memory grows so with the last word of its command line."""

    def run(gpu: GPUModel, words: Sequence[str]) -> RunOutcome:
        needed_bytes = size_bytes(int(words[-1].rpartition("=")[2]))
        fits = needed_bytes <= gpu.total_bytes
        peak_bytes = needed_bytes if fits else gpu.total_bytes
        return RunOutcome(gpu.name, fits, peak_bytes, peak_bytes, 0, None)

    return run


@pytest.mark.parametrize(
    ("size_bytes", "words", "most_runs"),
    [
        (lambda n: 2 * GIB + n * 100 * MIB, ["train.py"], 5),
        (lambda n: 2 * GIB + n * 100 * MIB, ["train.py", "--batch", "32"], 5),
        (lambda n: 2 * GIB + -(-n * 100 // 256) * 256 * MIB, ["train.py"], 10),  # in steps
        (lambda n: GIB + n * n * 2**14, ["train.py", "--batch", "64"], 10),  # attention
        (lambda n: 20 * GIB + n * 5 * GIB, ["train.py", "--batch", "8"], 5),  # none
    ],
)
def test_the_next_value_does_not_fit(
    size_bytes: Callable[[int], int], words: list[str], most_runs: int
) -> None:
    search = find_largest(needing(size_bytes), L4, words, "--batch")
    expected = sum(size_bytes(n) <= L4.total_bytes for n in range(1, 3000))
    assert (search.largest or 0) == expected
    assert search.too_large == expected + 1
    assert len(search.outcomes) <= most_runs


def test_multiples_only() -> None:
    search = find_largest(
        needing(lambda n: n * 100 * MIB), L4, ["train.py"], "--batch", multiple_of=8
    )
    expected = L4.total_bytes // (100 * MIB) // 8 * 8
    assert (search.largest, search.too_large) == (expected, expected + 8)
    assert all(value % 8 == 0 for value in search.outcomes)
    assert f"Largest value that fits: --batch {expected}; " in str(
        largest_table("train.py", search)
    )
    assert largest_as_dict("train.py", search)["largest"] == expected


def test_a_program_that_fails_is_told() -> None:
    def fails(gpu: GPUModel, words: Sequence[str]) -> RunOutcome:
        return RunOutcome(gpu.name, None, 0, 0, 0, None, "error: unrecognized arguments: --batch")

    with pytest.raises(UnusableRun, match="failed with --batch 1: error: unrec"):
        find_largest(fails, L4, ["train.py"], "--batch")


def test_a_program_that_never_gets_to_its_gpu_may_want_one_word() -> None:
    def fails(gpu: GPUModel, words: Sequence[str]) -> RunOutcome:
        raise UnusableRun(f"{' '.join(words)} failed before it used a GPU: AssertionError")

    with pytest.raises(UnusableRun, match="pass --largest --batch="):
        find_largest(fails, L4, ["train.py"], "--batch")
    with pytest.raises(UnusableRun, match=r"--batch=1 failed before it used a GPU: \w+$"):
        find_largest(fails, L4, ["train.py"], "--batch=")


@pytest.mark.parametrize(
    ("words", "option", "expected"),
    [
        (["x.py", "--batch", "4", "-v"], "--batch", ["x.py", "--batch", "7", "-v"]),
        (["x.py", "--batch=4"], "--batch", ["x.py", "--batch=7"]),
        (["x.py"], "--batch", ["x.py", "--batch", "7"]),
        (["x.py"], "data.batch", ["x.py", "data.batch=7"]),
        (["x.py"], "--batch=", ["x.py", "--batch=7"]),
        (["x.py", "--batch=4"], "--batch=", ["x.py", "--batch=7"]),
        # of two, argparse takes the last
        (["x.py", "--b", "8", "--b", "16"], "--b", ["x.py", "--b", "8", "--b", "7"]),
        (["x.py", "--b", "8", "--b=16"], "--b", ["x.py", "--b", "8", "--b=7"]),
        (["x.py", "--b=8", "--b", "16"], "--b", ["x.py", "--b=8", "--b", "7"]),
    ],
)
def test_the_value_takes_the_place_of_the_one_that_is_there(
    words: list[str], option: str, expected: list[str]
) -> None:
    assert with_value(words, option, 7) == expected


def test_the_search_begins_with_the_value_that_counts() -> None:
    words = ["train.py", "--b", "8", "--b", "16"]
    search = find_largest(needing(lambda n: n * GIB), L4, words, "--b")
    assert next(iter(search.outcomes)) == 16


def test_ctrl_c_leaves_what_is_known() -> None:
    def run(gpu: GPUModel, words: Sequence[str]) -> RunOutcome:
        if int(words[-1]) > 2:
            raise KeyboardInterrupt
        return needing(lambda n: n * GIB)(gpu, words)

    search = find_largest(run, L4, ["train.py"], "--b")
    assert (search.largest, len(search.interrupted)) == (2, 1)
    assert "Largest value that fits so far: 2." in str(largest_table("train.py", search))
    with pytest.raises(KeyboardInterrupt):
        find_largest(run, L4, ["train.py", "--b", "8"], "--b")
