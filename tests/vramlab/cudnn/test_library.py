"""cuDNN's library: where it is searched, and what is reported if it cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramlab import catalogue
from vramlab.cudnn import asking, library, table
from vramlab.cudnn.description import cudnn_json
from vramlab.cudnn.library import CudnnProcess, Installed
from vramlab.cudnn.workspaces import TABLES


def a_library(site: Path, version: str = "9.20.0.48") -> Path:
    path = site / "nvidia" / "cudnn" / "lib" / "libcudnn_graph.so.9"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    (site / f"nvidia_cudnn_cu13-{version}.dist-info").mkdir()
    return path


def a_folder_of_cublaslt(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "libcublasLt.so.13").write_bytes(b"")
    return folder


def test_what_the_native_engine_has_fetched_is_found(tmp_path: Path) -> None:
    path = a_library(tmp_path / "sites" / "nvidia-cudnn-cu13-9.19.0.56", "9.19.0.56")
    build = tmp_path / "builds" / "torch-2.11.0"
    products = a_folder_of_cublaslt(build / "lib")
    (build / "build.json").write_text(json.dumps({"cudnn": str(path)}))
    assert library.installed([], tmp_path) == [Installed(path, 91900, products)]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cudnn": null}', '{"cudnn": "/not/there"}'])
def test_a_build_without_it_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "builds" / "torch").mkdir(parents=True)
    (tmp_path / "builds" / "torch" / "build.json").write_text(text)
    assert library.installed([], tmp_path) == []


def test_the_packages_of_a_cuda_pytorch_are_found(tmp_path: Path) -> None:
    path = a_library(tmp_path)
    assert library.installed([str(tmp_path)], tmp_path) == []  # without cuBLASLt it would crash
    products = a_folder_of_cublaslt(tmp_path / "nvidia" / "cu13" / "lib")
    assert library.installed(["", str(tmp_path)], tmp_path) == [Installed(path, 92000, products)]


def test_a_cudnn_that_cannot_be_asked_without_a_gpu_is_passed_over(tmp_path: Path) -> None:
    a_library(tmp_path, "9.7.1.26")
    a_folder_of_cublaslt(tmp_path / "nvidia" / "cublas" / "lib")
    assert library.installed([str(tmp_path)], tmp_path) == []


def test_a_library_that_does_not_load_is_said_to_be_none(tmp_path: Path) -> None:
    path = a_library(tmp_path)
    broken = CudnnProcess(Installed(path, 92000, tmp_path), "{}")
    assert broken.ask([[]]) is None
    assert broken.problem is not None
    assert broken.problem.startswith(f"{path} cannot be asked: ")
    assert broken.ask([[]]) is None  # and is not started again


@pytest.fixture(scope="module")
def real() -> Installed:
    """The real library, where the native engine has it: what the table was asked of."""
    found = [one for one in library.installed(search_path=[]) if one.version in TABLES]
    if not found:
        pytest.skip("no cuDNN here: `vramlab native setup --cudnn`")
    return found[-1]


@pytest.mark.parametrize("gpu", ["T4", "A100-40GB", "H200"])
def test_it_answers_as_the_table(real: Installed, gpu: str) -> None:
    model = catalogue.find(gpu)
    known = table.answers(TABLES[real.version], model.compute_capability)
    asked = [each for each in table.problems()[::400] if known.get(each) is not None]
    asking = CudnnProcess(real, cudnn_json(model, 13000))
    answered = asking.ask([each.as_question() for each in asked])
    assert [table.shortened(sizes) for sizes in answered or ()] == [
        known.get(each) for each in asked
    ]
    assert len(asked) > 5


def test_a_question_that_makes_no_sense_is_an_error_and_not_the_end(real: Installed) -> None:
    question = table.problems()[0].as_question()
    question[2] = [[1, 2], [2, 1], 32]  # an input of two dimensions
    asking = CudnnProcess(real, cudnn_json(catalogue.find("H200"), 13000))
    first, second = asking.ask([question, table.problems()[0].as_question()]) or ()
    assert isinstance(first, str)
    assert first.startswith("cuDNN 9")
    assert isinstance(second, list)


def test_the_process_that_asks_needs_the_standard_library_alone() -> None:
    """It is started with -I -S: nothing of the environment is imported into it."""
    source = Path(asking.__file__).read_text(encoding="utf-8")
    imported = {line.split()[1] for line in source.splitlines() if line.startswith("from ")}
    assert imported == {"__future__", "collections.abc", "contextlib", "ctypes", "typing"}
