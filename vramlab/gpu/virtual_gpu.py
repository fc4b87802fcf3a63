"""`VirtualGPU`: GPUs that need not be there, for unmodified PyTorch CUDA code."""

from __future__ import annotations

import functools
import os
import warnings
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Literal

import torch

from vramlab import catalogue
from vramlab.allocator import AllocatorSettings
from vramlab.catalogue import GPUModel
from vramlab.errors import UnknownTorchVersionError
from vramlab.gpu import assumptions, self_check
from vramlab.gpu.attached_gpus import ATTACHED
from vramlab.gpu.core import modes
from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.core.function_mode import Service
from vramlab.gpu.core.machine import Machine
from vramlab.gpu.core.modes import EnteredModes
from vramlab.gpu.core.patching import warning_lines
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.session import Session, StandIn
from vramlab.gpu.core.values.value_policy import ValuePolicy
from vramlab.gpu.ops import autocast, cuda_paths
from vramlab.gpu.ops.values import AnswerNan, RefuseValues
from vramlab.gpu.stand_ins import (
    autograd_queue,
    callbacks,
    compile,
    cpp_extension,
    cuda_tensor_types,
    dlpack,
    dynamo,
    foreach_grouping,
    function_modes,
    generators,
    graphs,
    nan_sentinel,
    profiler,
    serialization,
    storages,
    swap_tensors,
    threads,
    torch_c,
)
from vramlab.gpu.stand_ins.libraries import nvml, safetensors, torchvision, triton
from vramlab.gpu.stand_ins.ranks import data_parallel_comm, multiprocessing, shared_host_tensors
from vramlab.gpu.stand_ins.tensor_overrides import TensorOverrides
from vramlab.gpu.torch_internals import destroy, installed_version
from vramlab.torch_versions import KNOWN_RULES, NEWEST, OLDEST, OLDEST_RULES, Version, parse, text
from vramlab.units import MIB


def _distributed(session: Session) -> None:
    if torch.distributed.is_available():  # not in every build of PyTorch
        from vramlab.gpu.stand_ins.ranks import distributed

        distributed.install(session)


STAND_INS: tuple[StandIn, ...] = (
    dynamo.install,
    autograd_queue.install,
    torch_c.install,
    storages.install,
    dlpack.install,
    shared_host_tensors.install,
    data_parallel_comm.install,
    serialization.install,
    safetensors.install,
    callbacks.install,
    compile.install,
    cpp_extension.install,
    torchvision.install,
    triton.install,
    _distributed,
    generators.install,
    graphs.install,
    foreach_grouping.install,
    function_modes.install,
    swap_tensors.install,
    nan_sentinel.install,
    multiprocessing.install,
    profiler.install,
    cuda_tensor_types.install,
    warning_lines.install,
    cuda_paths.install,
    autocast.install,
    threads.install,
    nvml.install,
)
"""What stands in for parts of PyTorch while a GPU is awake, in the order in which it is put there.
It is taken away in the opposite order."""

HOST_VALUES_BELOW_BYTES = 16 * MIB
"""Host tensors from this size on hold no values, so that building a large model on the host, before
it is moved, takes no more memory than a laptop has."""


MOST_GPUS = 2**7
"""Source: `DeviceIndex` is an int8_t in c10/core/Device.h, PyTorch 2.13."""


class VirtualGPU:
    """One or more GPUs that need not be there.

    Inside `with VirtualGPU("T4"):` (or between `attach()` and `detach()`) PyTorch has the GPU:
    `model.to("cuda")`, training, `torch.cuda.max_memory_allocated()`, `torch.cuda.memory_summary()`
    and pynvml work unmodified, and memory is counted to the byte by a model of PyTorch's caching
    allocator. Tensors have sizes and places, but no values; `values=True` computes them, on the
    CPU.

    Args:
        name: a GPU of `vramlab.catalogue`, such as "T4"; or the model of one that is not in it.
        count: how many of them.
        values: compute real values on the CPU. For small tensors: they take host memory.
        on_value: what reading a value that does not exist returns. "error" raises an error that
            says what to do. "nan" returns nan (0 for integers) and records the line that read it
            (`gpu.values.reads`); `math` takes that nan for a number, as in a healthy run. "zero"
            returns 0.
        torch_version: the PyTorch whose rules are meant, one of `torch_versions.KNOWN_RULES`; by
            default the installed one, or the newest known one if the installed one is newer.
        alloc_conf: allocator settings, as in PYTORCH_CUDA_ALLOC_CONF; by default those of the
            environment variable that PyTorch reads (`AllocatorSettings.from_environment`).
        host_values_below_bytes: host tensors from this size on hold no values.

    Raises:
        UnknownGPUError: no GPU of that name.
        UnknownTorchVersionError: a torch_version that is none, or whose rules are not known.
        AllocatorConfigError: settings that cannot be understood.
        ValueError: a count below 1, or above 128.

    Known limitations:
        - `torch_version` chooses the rules: what kernels and libraries take, which kernels are
          chosen, whether gradients are added up in place. What autograd keeps for the backward
          pass, and of which ops a function is made, is that of the PyTorch that is installed. The
          oldest version that was compared with measurements is 1.13; below it there is a warning,
          and of autograd only softmax's input is known, which was kept before 1.11.
        - Kernel images and library handles that CUDA loads on first use are not counted: what NVML
          reports is the context of the catalogue plus reserved memory.
        - Ops in the backward pass run on the current stream, not on the stream of their forward.
        - torch.compile's own kernels are not modelled, nor the CUDA graphs of its mode
          "reduce-overhead".
        - What kernels take inside an op is known by rules (`vramlab.kernels`); `gpu.unreviewed()`
          lists the ops of a run that were counted by their outputs only.
    """

    def __init__(
        self,
        name: str | GPUModel = "A100-40GB",
        count: int = 1,
        *,
        values: bool = False,
        on_value: Literal["error", "nan", "zero"] = "error",
        torch_version: str | None = None,
        alloc_conf: str | None = None,
        host_values_below_bytes: int = HOST_VALUES_BELOW_BYTES,
    ) -> None:
        if count < 1:
            raise ValueError(f"count={count}: a machine with a virtual GPU has at least one")
        if count > MOST_GPUS:
            raise ValueError(f"count={count}: PyTorch numbers at most {MOST_GPUS} GPUs")
        if alloc_conf is None:
            settings = AllocatorSettings.from_environment(os.environ)
        else:
            settings = AllocatorSettings.parse(alloc_conf)
        self._options: dict[str, Any] = {
            "name": name,
            "count": count,
            "values": values,
            "on_value": on_value,
            "torch_version": torch_version,
            "alloc_conf": settings.text,
            "host_values_below_bytes": host_values_below_bytes,
        }
        self.model = name if isinstance(name, GPUModel) else catalogue.find(name)
        self.values: ValuePolicy = (
            RefuseValues() if on_value == "error" else AnswerNan(zero=on_value == "zero")
        )
        self.machine = Machine(
            [self.model] * count,
            settings,
            _installed_rules() if torch_version is None else _rules_of(torch_version),
        )
        self.dispatcher = Dispatcher(
            self.machine,
            torch.device("cpu" if values else "meta"),
            self.values,
            host_values_below_bytes,
        )
        self._service = Service(self.dispatcher, TensorOverrides(self.dispatcher).table())
        self._undo = ExitStack()
        self._modes = EnteredModes()

    @property
    def name(self) -> str:
        """Name in the catalogue."""
        return self.model.name

    @property
    def count(self) -> int:
        """How many GPUs there are."""
        return len(self.machine.devices)

    @property
    def virtual(self) -> bool:
        """Return True: this GPU needs no hardware."""
        return True

    def unreviewed(self) -> dict[str, int]:
        """List ops that ran without a kernel model: only their outputs are counted.

        Returns:
            The op's name and how often it ran.
        """
        from vramlab.kernels import classify

        return {
            str(func): times
            for func, times in sorted(self.dispatcher.seen.items(), key=lambda item: str(item[0]))
            if classify(func).name == "UNREVIEWED"
        }

    def attach(self) -> VirtualGPU:
        """Make this the machine's GPU until `detach()`. A GPU attached before sleeps until then.

        GPUs can be detached in any order. Of those that remain, the one attached last is awake.
        Attaching is process-wide: a thread may attach several GPUs, one inside the other, but not
        while another thread has one attached.

        Raises:
            RuntimeError: it is attached already, or another thread has a GPU attached.
            UnsupportedOnVirtualGPU: PyTorch is too old, its private names are not those that are
                needed, or what is assumed of CPython and PyTorch does not hold.
        """
        with ATTACHED.lock:
            if self in ATTACHED:
                raise RuntimeError(f"{self!r} is attached already")
            ATTACHED.check_thread()
            self_check.check()
            with dynamo.without_dynamo():
                assumptions.check()
            self._attach()
        return self

    def _attach(self) -> None:
        with ExitStack() as undo:  # of what is done, should the rest fail
            if (outer := ATTACHED.newest) is not None:
                undo.callback(outer._wake)
                outer._sleep()
            self._modes = modes.enter()
            undo.callback(self._modes.leave)
            self._wake()
            ATTACHED.add(self)
            undo.pop_all()

    def detach(self) -> None:
        """Take the GPU away: PyTorch is again as it was before `attach()`.

        Any thread may do so.
        """
        with ATTACHED.lock:
            if self in ATTACHED:
                self._detach()

    def _detach(self) -> None:
        was_awake = ATTACHED.newest is self
        ATTACHED.remove(self)
        with ExitStack() as then:
            if was_awake:
                if (outer := ATTACHED.newest) is not None:
                    then.callback(outer._wake)
                then.callback(self._sleep)
            then.callback(self._modes.leave)

    def __enter__(self) -> VirtualGPU:
        return self.attach()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.detach()

    def __repr__(self) -> str:
        return f"VirtualGPU({self.name!r}, count={self.count})"

    def _wake(self) -> None:
        """Put everything of this GPU in place, in all threads."""
        with ExitStack() as undo:
            session = self._begin_session(undo)
            for stand_in in STAND_INS:
                if (installed := stand_in(session)) is not None:
                    undo.enter_context(installed)
            undo.callback(modes.serve, None)
            modes.serve(self._service)
            self._undo = undo.pop_all()

    def _sleep(self) -> None:
        """Put back what was there before `_wake()`."""
        self._undo.close()

    def _begin_session(self, undo: ExitStack) -> Session:
        patches = Patches()
        undo.callback(patches.undo)
        library = torch.library.Library("aten", "IMPL")
        undo.callback(destroy, library)
        return Session(
            machine=self.machine,
            dispatcher=self.dispatcher,
            values=self.values,
            patches=patches,
            library=library,
            make_alike=functools.partial(VirtualGPU, **self._options),
            thread_ends=self._thread_ends,
        )

    def _thread_ends(self) -> None:
        for gpu in {self, *ATTACHED}:
            gpu.machine.thread_ends()


def _installed_rules() -> Version:
    """Return the (major, minor) whose rules the installed PyTorch follows, as far as known."""
    return min(installed_version(), NEWEST)


def _rules_of(torch_version: str) -> Version:
    """Read (major, minor) of a version such as "2.11" or "2.13.0+cpu"; warn of one that is too old.

    Raises:
        UnknownTorchVersionError: it is none, or its rules are not known.
    """
    version = parse(torch_version)
    if version is None:
        raise UnknownTorchVersionError(
            f"torch_version={torch_version!r} is no version of PyTorch: write it like "
            f'"{text(OLDEST)}"'
        )
    if version == installed_version():
        return _installed_rules()
    if version > OLDEST_RULES and version not in KNOWN_RULES:
        known = ", ".join(map(text, KNOWN_RULES))
        raise UnknownTorchVersionError(
            f"unknown PyTorch version {torch_version!r}: use one of {known}"
        )
    if version < OLDEST_RULES:
        oldest = text(OLDEST_RULES)
        warnings.warn(
            f"torch_version={torch_version!r} is older than all versions that were compared with "
            f"measurements: the rules are those of PyTorch {oldest} and later, and autograd saves "
            f"for backward what the installed PyTorch {torch.__version__} saves. "
            "Of older versions only the input that softmax saved before 1.11 is known. Results may "
            f'be some percent off; use torch_version="{oldest}" or later for exact ones.',
            stacklevel=3,
        )
    return version
