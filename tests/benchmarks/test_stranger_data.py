"""Random data for public scripts: files of the form and size that the scripts read."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from benchmarks import stranger_data as data


def test_tokens_take_two_bytes_each(tmp_path: Path) -> None:
    data.tokens("a/train.bin", vocabulary=65, count=100, meta="a/meta.pkl")(tmp_path)
    written = (tmp_path / "a" / "train.bin").read_bytes()
    assert len(written) == 100 * 2
    assert max(written[::2]) < 65  # little endian: the first byte of each
    assert not any(written[1::2])
    assert pickle.loads((tmp_path / "a" / "meta.pkl").read_bytes()) == {"vocab_size": 65}


def test_a_text_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    data.text("mine.txt", "other.txt", lines=3)(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    lines = (tmp_path / "other.txt").read_text().splitlines()
    assert [len(line.split()) for line in lines] == [12] * 3


def test_digits_have_the_header_of_their_format(tmp_path: Path) -> None:
    data.mnist("d", count=7)(tmp_path)
    folder = tmp_path / "d" / "MNIST" / "raw"
    pictures = (folder / "t10k-images-idx3-ubyte").read_bytes()
    assert len(pictures) == 4 * 4 + 7 * 28 * 28
    assert pictures[:4] == bytes([0, 0, 8, 3])  # unsigned bytes, three dimensions
    assert (folder / "train-labels-idx1-ubyte").read_bytes()[8:] == bytes(range(7))


def test_boxes_lie_in_pictures_that_are_there(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    data.coco("c", count=2)(tmp_path)
    told = json.loads((tmp_path / "c/annotations/instances_val2017.json").read_text())
    assert len(told["annotations"]) == 2
    for picture in told["images"]:
        assert (tmp_path / "c" / "val2017" / picture["file_name"]).exists()


def test_a_graph_names_nodes_that_it_has(tmp_path: Path) -> None:
    data.cora("g", nodes=5, features=8)(tmp_path)
    rows = [line.split() for line in (tmp_path / "g" / "cora.content").read_text().splitlines()]
    assert [len(row) for row in rows] == [1 + 8 + 1] * 5
    nodes = {row[0] for row in rows}
    assert {*(tmp_path / "g" / "cora.cites").read_text().split()} <= nodes
