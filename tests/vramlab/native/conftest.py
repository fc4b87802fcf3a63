"""Substitute libraries for what no PyTorch needs, and programs that call them through ctypes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vramlab import catalogue
from vramlab.native import report
from vramlab.native.compiler import find_compiler
from vramlab.native.elf import Symbol
from vramlab.native.errors import NativeEngineError
from vramlab.native.gpu import describe
from vramlab.native.needs import Needs
from vramlab.native.report import SubstituteCall
from vramlab.native.setup import check_platform
from vramlab.native.substitutes import compile_all

NEEDS: Needs = {
    "libcudart.so.13": frozenset({Symbol("cudaMalloc", "libcudart.so.13")}),
    "libcublas.so.13": frozenset(
        {
            Symbol("cublasSgemm_v2", "libcublas.so.13"),
            Symbol("cublasSgelsBatched", "libcublas.so.13"),
        }
    ),
    "libcublasLt.so.13": frozenset({Symbol("cublasLtMatmul", "libcublasLt.so.13")}),
    "libnccl.so.2": frozenset({Symbol("ncclAllGather", None)}),
    "libnvunheard.so.1": frozenset({Symbol("nvUnheard", None)}),
}

_PREAMBLE = """
import ctypes, json
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
cuda, driver = ctypes.CDLL("libcudart.so.13"), ctypes.CDLL("libcuda.so.1")
MIB = 2**20

def call(function, *arguments):
    status = function(*arguments)
    assert status == 0, (function.__name__, status)

def malloc(size):
    address = c_void_p()
    call(cuda.cudaMalloc, byref(address), c_size_t(size))
    return address

def memory():
    free, total = c_size_t(), c_size_t()
    call(cuda.cudaMemGetInfo, byref(free), byref(total))
    return free.value, total.value

def copy(to, start, size):
    call(cuda.cudaMemcpy, to, start, c_size_t(size), 4)

def at(address, offset):
    return c_void_p(address.value + offset)
"""

Answer = Callable[..., Any]


@pytest.fixture(scope="session")
def compiler() -> tuple[str, ...]:
    """Words that call a C compiler."""
    try:
        check_platform()
        return find_compiler()
    except NativeEngineError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def substitutes(compiler: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with substitutes for the runtime, the driver, NVML, cuBLAS and one unheard of."""
    folder = tmp_path_factory.mktemp("substitutes")
    compile_all(NEEDS, folder, {"CUDA_VERSION": 13000}, compiler)
    return folder


@pytest.fixture
def answer(substitutes: Path, tmp_path: Path) -> Answer:
    """Run a program on the substitutes, and get what it assigns to `answer`.

    The program is text; what it can use, `_PREAMBLE` defines. Keywords: `gpu` (a name, or None for
    no description), `count`, `streams`, `host_bytes`, `variables` (of the environment).
    `answer.calls()` is what was reported.
    """
    return _Answer(substitutes, tmp_path / "calls")


class _Answer:
    def __init__(self, substitutes: Path, report_file: Path) -> None:
        self._substitutes = substitutes
        self._report_file = report_file
        report.make_file(report_file)

    def __call__(
        self,
        program: str,
        gpu: str | None = "T4",
        variables: dict[str, str] | None = None,
        **how: Any,
    ) -> Any:
        values = {name: value for name, value in os.environ.items() if "CUDA" not in name}
        values["LD_LIBRARY_PATH"] = str(self._substitutes)
        values["VRAMLAB_NATIVE_REPORT"] = str(self._report_file)
        if gpu is not None:
            values["VRAMLAB_NATIVE_GPU"] = describe(catalogue.find(gpu), **how)
        text = f"{_PREAMBLE}\n{textwrap.dedent(program)}\nprint(json.dumps(answer))"
        done = subprocess.run(
            [sys.executable, "-S", "-c", text],
            env=values | (variables or {}),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def calls(self) -> list[SubstituteCall]:
        return report.read_file(self._report_file)
