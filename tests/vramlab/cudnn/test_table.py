"""The table of cuDNN's answers: made, added to, and the one that comes with vramlab."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from vramlab import catalogue
from vramlab.cudnn import table
from vramlab.cudnn.problems import Convolution
from vramlab.cudnn.workspaces import OLDEST_CAPABILITIES, TABLES, VERSIONS
from vramlab.units import MIB

SMALL = Convolution(
    "forward", "f32", (1, 8, 4, 4), (8, 8, 3, 3), (1, 8, 4, 4), (1, 1), (1, 1), (1, 1)
)
OTHER = replace(SMALL, operation="input")
LATER = replace(SMALL, dtype="bf16")


def test_answers_stay_with_their_convolutions_when_others_are_added(tmp_path: Path) -> None:
    asked = table.add_problems([SMALL, OTHER], tmp_path)
    assert asked == [SMALL, OTHER]
    table.write_answers(92000, (9, 0), [[131, 131, 0], None], tmp_path)
    known = table.answers(92000, (9, 0), tmp_path)
    assert (known.get(SMALL), known.get(OTHER), known.get(LATER)) == ((131, 0), None, None)
    assert table.add_problems([LATER], tmp_path) == [LATER, SMALL, OTHER]  # in the order of keys
    known = table.answers(92000, (9, 0), tmp_path)
    assert (known.get(SMALL), known.get(OTHER), known.get(LATER)) == ((131, 0), None, None)


def test_an_unknown_gpu_or_version_has_no_answers(tmp_path: Path) -> None:
    table.add_problems([SMALL], tmp_path)
    assert len(table.answers(92000, (9, 0), tmp_path)) == 0


def test_a_table_has_what_differs_from_the_one_before(tmp_path: Path) -> None:
    asked = table.add_problems([SMALL, OTHER, LATER], tmp_path)
    for version, last in ((91900, [7]), (92000, [7]), (92400, [8])):
        path = table.write_answers(version, (9, 0), [None, [131, 0], last], tmp_path)
    table.write_answers(92600, (10, 0), [[1], [131, 0], [8]], tmp_path)
    assert gzip.decompress(path.read_bytes()) == b"\n=\n8"
    known = table.answers(92400, (9, 0), tmp_path)
    assert [known.get(each) for each in asked] == [None, (131, 0), (8,)]


def versions_of(model: catalogue.GPUModel) -> list[int]:
    """Each cuDNN that takes a GPU, and that has a table for it."""
    if model.compute_capability < (7, 5):
        return [91002]
    return [version for version in TABLES if OLDEST_CAPABILITIES[version] == (7, 5)]


# One GPU of each compute capability: all that the table is asked by.
OF_EACH_CAPABILITY = {gpu.compute_capability: gpu for gpu in reversed(catalogue.models())}


@pytest.mark.parametrize("model", OF_EACH_CAPABILITY.values(), ids=lambda model: model.name)
def test_the_table_knows_every_gpu_of_the_catalogue(model: catalogue.GPUModel) -> None:
    asked = table.problems()
    emulated = {"bf16"} if model.compute_capability < (8, 0) else set()
    assert len(asked) > 1000
    for version in versions_of(model):
        known = table.answers(TABLES[version], model.compute_capability)
        unknown = [each for each in asked if known.get(each) is None and each.dtype not in emulated]
        assert len(unknown) < len(asked) / 20  # what cuDNN has no engine for


def test_every_pytorch_has_a_table() -> None:
    assert set(TABLES) == set(OLDEST_CAPABILITIES) == set(VERSIONS.values())


@pytest.mark.parametrize(
    ("gpu", "size_bytes"),
    [
        ("H200", 822_231_187),
        ("RTX-3060", 411_189_264),
        ("T4", 1_850_277_888),
        ("V100-16GB", 409_856),
    ],
)
def test_the_second_layer_of_vgg16(gpu: str, size_bytes: int) -> None:
    """Batch 32: as cuDNN 9.20.0 answers, of a V100 9.10.2; the H200's recording shows as much."""
    layer = Convolution(
        "forward",
        "f32",
        (32, 64, 224, 224),
        (64, 64, 3, 3),
        (32, 64, 224, 224),
        (1, 1),
        (1, 1),
        (1, 1),
    )
    model = catalogue.find(gpu)
    version = 92000 if model.compute_capability >= (7, 5) else 91002
    known = table.answers(version, model.compute_capability)
    assert (known.get(layer) or ())[0] == size_bytes


def test_plans_that_decide_nothing_are_left_out() -> None:
    """The first; smaller ones, for when memory runs out; all from 64 MiB on; the largest."""
    large = 64 * MIB
    assert table.shortened([5, 5, 7, 6, 3, 4, 0, 1]) == (5, 7, 3, 0)
    assert table.shortened([5, large + 9, 7, large, large + 2]) == (5, large + 9, large, large + 2)
    assert table.shortened([]) == ()
