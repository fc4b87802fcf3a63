"""The environment of an experiment: facts of the attached GPU, and whose rules hold.

Experiments measure through torch's interface alone. Predictions depend on a few facts of the GPU
and of the PyTorch version; those are gathered here.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass

import torch

from vramlab.attachment import attached
from vramlab.cuda_rules import cublas, reduce
from vramlab.errors import NeedsMoreGPUs
from vramlab.gpu import VirtualGPU
from vramlab.gpu.torch_internals import clear_cublas_workspaces


@dataclass(frozen=True)
class GPUEnvironment:
    """Facts of GPU and PyTorch that predictions depend on."""

    compute_capability: tuple[int, int]
    """Major and minor, such as (8, 0)."""
    multiprocessors: int
    """How many the GPU has."""
    threads_per_multiprocessor: int
    """How many can be resident."""
    torch_version: tuple[int, int]
    """The PyTorch whose rules hold: the installed one, or the one a virtual GPU stands for."""
    installed_version: tuple[int, int]
    """The PyTorch that is installed, whose Python code runs in either case."""

    @property
    def rules(self) -> str:
        """Write the version as text, such as '2.13'."""
        return ".".join(map(str, self.torch_version))

    def linear_workspace_bytes(self, bias: bool = True) -> int:
        """Add up the workspaces that the first forward pass of Linear layers leaves behind."""
        library: cublas.Library = "cublaslt" if bias else "cublas"
        return cublas.kept_workspace_bytes(library, self.compute_capability, self.torch_version)

    def matmul_workspace_bytes(self) -> int:
        """Return the workspace that a thread's first plain matrix product leaves behind."""
        return self.linear_workspace_bytes(bias=False)

    def column_sum_bytes(self, rows: int, columns: int) -> int:
        """Add up what summing a float32 (rows, columns) over its rows takes while it runs."""
        return sum(reduce.column_sum_bytes(rows, columns, self._threads))

    def total_sum_bytes(self, numel: int) -> int:
        """Add up what summing all of a float32 tensor takes while it runs."""
        return sum(reduce.total_sum_bytes(numel, self._threads))

    @property
    def _threads(self) -> reduce.GpuThreads:
        return reduce.GpuThreads(self.multiprocessors, self.threads_per_multiprocessor)


def gpu_environment() -> GPUEnvironment:
    """Read the environment here and now; RuntimeError without a GPU, real or virtual."""
    require_gpu()
    properties = torch.cuda.get_device_properties(0)
    gpu = attached()
    major, minor, *_ = torch.__version__.split(".")
    installed = int(major), int(minor)
    return GPUEnvironment(
        compute_capability=torch.cuda.get_device_capability(),
        multiprocessors=properties.multi_processor_count,
        threads_per_multiprocessor=properties.max_threads_per_multi_processor,
        torch_version=gpu.machine.torch_version if isinstance(gpu, VirtualGPU) else installed,
        installed_version=installed,
    )


def require_gpu() -> None:
    """Say what to do without a GPU to measure."""
    if attached() is None:
        raise RuntimeError(
            "an experiment needs a GPU and none is attached: call vramlab.attach(), or run it "
            'inside `with vramlab.VirtualGPU("A100-40GB"):`'
        )


def require_gpus(count: int, example: str) -> None:
    """Say what to do where there are too few GPUs.

    Args:
        count: how many are needed.
        example: name of a GPU in the catalogue, for the message.

    Raises:
        NeedsMoreGPUs: fewer are there.
    """
    if torch.cuda.device_count() < count:
        raise NeedsMoreGPUs(
            f"{count} GPUs are needed, and {torch.cuda.device_count()} are there: "
            f'vramlab.attach("{example}", count={count}, virtual=True) attaches as many'
        )


def start_afresh() -> None:
    """Free what earlier work left on the GPU, unless something still holds it.

    Garbage that may hold memory of a GPU is collected, cuBLAS's workspaces and the cache are
    freed, and the counters are reset, so that an experiment's first stage is measured as in a fresh
    process.
    """
    if not torch.cuda.is_initialized():
        return
    clear_cublas_workspaces()
    # A collection goes over all that was ever imported, which takes a quarter of a second.
    if any(torch.cuda.memory_allocated(index) for index in range(torch.cuda.device_count())):
        gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.reset_peak_memory_stats()
