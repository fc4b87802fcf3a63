"""Stubs for functions without a meaning, and for unknown libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from vramlab.native import elf
from vramlab.native.builds import Build, python_tag
from vramlab.native.compiler import link
from vramlab.native.elf import Symbol
from vramlab.native.errors import NativeEngineError
from vramlab.native.foreign import Missing, missing_for
from vramlab.native.libraries import LIBRARIES
from vramlab.native.report import Kind, SubstituteCall, as_lines
from vramlab.native.substitutes import (
    SOURCES,
    compile_all,
    missing_symbols,
    sources_fingerprint,
)


def test_what_has_no_meaning_is_refused_by_name_and_what_computes_succeeds(answer) -> None:
    assert answer("""
        blas, handle = ctypes.CDLL("libcublas.so.13"), c_void_p()
        call(blas.cublasCreate_v2, byref(handle))
        statuses = [blas.cublasSgelsBatched() for _ in range(3)] + [blas.cublasSgemm_v2(handle)]
        unheard = ctypes.CDLL("libnvunheard.so.1")
        answer = [*statuses, unheard.nvUnheard()]
    """) == [15, 15, 15, 0, 1]  # CUBLAS_STATUS_NOT_SUPPORTED
    assert answer.calls() == [
        SubstituteCall(Kind.REFUSED, "libcublas.so.13", "cublasSgelsBatched", 3),
        SubstituteCall(Kind.REFUSED, "libnvunheard.so.1", "nvUnheard", 1),
        SubstituteCall(Kind.COMPUTES, "libcublas.so.13", "cublasSgemm_v2", 1),
    ]


def test_a_library_that_was_loaded_from_elsewhere_is_told(
    answer, compiler: tuple[str, ...], tmp_path: Path
) -> None:
    """A package's own runtime, of another version; its own library of another name is its own."""
    for name in ("libcudart.so.12", "libcurious.so.1"):
        source = tmp_path / "empty.c"
        source.write_text("")
        link(compiler, tmp_path / name, [source], include=SOURCES, macros={})
    assert answer(f"""
        ctypes.CDLL({str(tmp_path / "libcudart.so.12")!r})
        ctypes.CDLL({str(tmp_path / "libcurious.so.1")!r})
        answer = 1
    """)
    where = str(tmp_path / "libcudart.so.12")[-71:]  # what a record holds
    assert answer.calls() == [SubstituteCall(Kind.FOREIGN, "libcudart.so.12", where, 1)]
    assert as_lines(answer.calls())[1:] == [f"  libcudart.so.12: {where}, once"]


def test_the_processes_of_a_program_count_together(answer) -> None:
    answer("""
        import os
        unheard = ctypes.CDLL("libnvunheard.so.1")
        for _ in range(3):
            child = os.fork()
            if child == 0:
                for _ in range(1000):
                    unheard.nvUnheard()
                os._exit(0)
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
        answer = 0
    """)
    assert answer.calls() == [SubstituteCall(Kind.REFUSED, "libnvunheard.so.1", "nvUnheard", 3000)]


def test_a_product_whose_result_would_be_on_the_host_is_refused(answer) -> None:
    assert answer("""
        blas, handle, mode = ctypes.CDLL("libcublas.so.13"), c_void_p(), c_int(-1)
        call(blas.cublasCreate_v2, byref(handle))
        call(blas.cublasGetPointerMode_v2, handle, byref(mode))
        on_host = blas.cublasSdot_v2(handle)
        call(blas.cublasSetPointerMode_v2, handle, 1)
        answer = mode.value, on_host, blas.cublasSdot_v2(handle)
    """) == [0, 15, 0]


def test_descriptors_answer_what_they_were_told(answer) -> None:
    """A layout of 30 x 20 with a leading dimension of 32, told that it is a batch of 7."""
    assert answer("""
        blas, layout, seven = ctypes.CDLL("libcublasLt.so.13"), c_void_p(), c_int(7)
        sizes = c_uint64(30), c_uint64(20), c_uint64(32)
        call(blas.cublasLtMatrixLayoutCreate, byref(layout), 0, *sizes)
        def attribute(number, kind):
            value, size = kind(), c_size_t()
            function = blas.cublasLtMatrixLayoutGetAttribute
            call(function, layout, number, byref(value), c_size_t(ctypes.sizeof(kind)), byref(size))
            return value.value
        before = attribute(5, c_int)
        call(blas.cublasLtMatrixLayoutSetAttribute, layout, 5, byref(seven), c_size_t(4))
        answer = before, attribute(5, c_int), [attribute(number, c_uint64) for number in (2, 3, 4)]
    """) == [1, 7, [30, 20, 32]]


def test_the_runtime_finds_the_substitute_driver_and_names_what_it_lacks(answer) -> None:
    found = answer("""
        def entry(name):
            function, status = c_void_p(), c_int(-1)
            found = byref(function), 13000, c_uint64(0), byref(status)
            call(cuda.cudaGetDriverEntryPointByVersion, name, *found)
            return bool(function.value), status.value
        answer = entry(b"cuMemCreate"), entry(b"cuMemGetAddressRange"), entry(b"cuNobodyKnows")
    """)
    assert found == [[True, 0], [True, 0], [False, 1]]
    assert answer.calls() == [SubstituteCall(Kind.REFUSED, "libcuda.so.1", "cuNobodyKnows", 1)]


def test_symbols_have_the_versions_that_are_needed(substitutes: Path) -> None:
    runtime = elf.read(substitutes / "libcudart.so.13")
    assert Symbol("cudaMalloc", "libcudart.so.13") in runtime.defined
    assert "libvramlab_native.so" in runtime.libraries
    assert not any(name.startswith(("libcu", "libnv")) for name in runtime.libraries)
    driver = elf.read(substitutes / "libcuda.so.1")
    assert Symbol("cuInit", None) in driver.defined


def test_missing_symbols_are_named(substitutes: Path) -> None:
    needed = frozenset(
        {
            Symbol("cudaMalloc", "libcudart.so.13"),
            Symbol("cudaMalloc", "libcudart.so.99"),
            Symbol("cudaUnheard", "libcudart.so.13"),
        }
    )
    assert missing_symbols({"libcudart.so.13": needed}, substitutes) == [
        "cudaMalloc@libcudart.so.99 (libcudart.so.13)",
        "cudaUnheard@libcudart.so.13 (libcudart.so.13)",
    ]


def test_libraries_of_cuda_12_compile_as_well(compiler, tmp_path: Path) -> None:
    needs = {
        "libcudart.so.12": frozenset({Symbol("cudaGetDeviceProperties_v2", "libcudart.so.12")})
    }
    compile_all(needs, tmp_path, {"CUDA_VERSION": 12080}, compiler)
    assert (
        Symbol("cudaGetDeviceProperties_v2", "libcudart.so.12")
        in elf.read(tmp_path / "libcudart.so.12").defined
    )


def test_device_properties_have_the_sizes_of_both_releases(compiler, tmp_path: Path) -> None:
    """1,032 bytes in CUDA 12, 1,008 in CUDA 13, as programs that were compiled for them pass."""
    source = tmp_path / "size.c"
    source.write_text(
        '#include "cudart/properties.h"\n'
        '__attribute__((visibility("default"))) char size_of[sizeof(cudaDeviceProp)];\n'
    )
    sizes = []
    for cuda_version in (12080, 13000):
        out = tmp_path / f"libsize{cuda_version}.so"
        link(compiler, out, [source], include=SOURCES, macros={"CUDA_VERSION": cuda_version})
        data = out.read_bytes()
        sizes.append([size for size in (1008, 1032) if size.to_bytes(8, "little") in data])
    assert sizes == [[1032], [1008]]


def test_a_source_that_does_not_compile_is_told_with_the_compilers_words(
    compiler, tmp_path
) -> None:
    source = tmp_path / "bad.c"
    source.write_text("int f(void) { return nothing; }\n")
    with pytest.raises(NativeEngineError, match=r"(?s)cannot make libbad\.so .*nothing"):
        link(
            compiler,
            tmp_path / "libbad.so",
            [source],
            include=SOURCES,
            macros={"CUDA_VERSION": 13000},
        )


def test_every_library_with_sources_has_them() -> None:
    for library in LIBRARIES:
        for pattern in library.sources:
            assert list(SOURCES.glob(pattern)), (library.stem, pattern)


def test_functions_that_write_on_the_host_never_just_succeed() -> None:
    """Creating, asking for sizes, and results on the host have outputs: no pattern lets them by."""
    examples = [
        "cublasSrotg_v2", "cublasDrotmg_v2", "cublasSgelsBatched", "cublasSgeqrfBatched",
        "cublasSgetrsBatched", "cublasGetVectorAsync", "cublasSdot_v2", "cublasIsamax_v2",
        "cudnnGetRNNTempSpaceSizes", "cudnnCreateRNNDescriptor",
        "cudnnFindConvolutionForwardAlgorithmEx",
        "ncclCommSplit", "ncclMemAlloc", "cusolverDnSpotrf_bufferSize", "cufftXtMakePlanMany",
    ]  # fmt: skip
    for name in examples:
        assert not any(library.is_computing(name) for library in LIBRARIES), name
    for name in (
        "cublasSgemm_v2",
        "cublasGemmStridedBatchedEx",
        "ncclAllReduce",
        "cudnnRNNForward",
    ):
        assert any(library.is_computing(name) for library in LIBRARIES), name


# ---- packages with CUDA libraries of their own ----


@pytest.fixture
def package(tmp_path: Path, compiler: tuple[str, ...], substitutes: Path) -> Path:
    """A folder with a library that calls CUDA's runtime, and one of the substituted build's."""
    source = tmp_path / "package.c"
    source.write_text(
        "int cudaMalloc(void); int cudaUnheard(void);"
        '__attribute__((visibility("default"))) int use(void)'
        "{ return cudaMalloc() + cudaUnheard(); }"
    )
    folder = tmp_path / "package"
    folder.mkdir()
    neighbours = [substitutes / "libcudart.so.13"]
    link(compiler, folder / "lib.so", [source], include=SOURCES, macros={}, libraries=neighbours)
    return folder


def a_build(libraries: Path) -> Build:
    """A build whose substitutes are in a folder called `lib`."""
    assert libraries.name == "lib"
    folder = libraries.parent
    return Build(folder, "2.11.0+cu130", 13000, python_tag(), folder, sources_fingerprint(), None)


def test_what_a_package_misses_is_named(package: Path, substitutes: Path, tmp_path: Path) -> None:
    (tmp_path / "lib").symlink_to(substitutes)
    build = a_build(tmp_path / "lib")
    library = package / "lib.so"
    assert missing_for(str(package), build) == [Missing(library, (), ("cudaUnheard",))]
    assert missing_for(str(library), build) == [Missing(library, (), ("cudaUnheard",))]
    (tmp_path / "other").mkdir()  # substitutes for another version of CUDA
    (tmp_path / "lib").unlink()
    (tmp_path / "other").rename(tmp_path / "lib")
    (missing,) = missing_for(str(package), build)
    assert missing.files == ("libcudart.so.13",)
    assert missing.functions == ("cudaMalloc", "cudaUnheard")


def test_a_package_that_brings_its_own_libraries_misses_nothing(
    package: Path, substitutes: Path, tmp_path: Path
) -> None:
    """What lies beside it is found there; a name without version may still be another's."""
    (tmp_path / "lib").mkdir()
    (package / "libcudart.so.13").symlink_to(substitutes / "libcudart.so.13")
    found = missing_for(str(package / "lib.so"), a_build(tmp_path / "lib"))
    assert [missing.files for missing in found] == [()]
