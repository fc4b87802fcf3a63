"""Jupyter kernels that are forked from one process, which has imported what lessons import.

A kernel of its own for each lesson costs an import of torch each, more than most lessons compute.
These kernels differ from JupyterLab's in nothing else: `make lab` is tried with those.
"""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import gc
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner
from nbclient import NotebookClient
from nbformat import NotebookNode

from packages import folder_of

PROVISIONER = "forked-provisioner"

STUCK_S = 600
"""A cell that takes longer does not end, however busy the machine is."""

ROOMS = folder_of("vramlab_course") / "lessons"
IMPORTED = (
    *("ipykernel.kernelapp", "ipykernel.ipkernel", "ipykernel.debugger"),
    "matplotlib_inline.backend_inline",
    *("torch._dynamo", "torch.distributed.fsdp", "torchinfo", "transformers.modeling_utils"),
    *(
        "vramlab_course.experiments",
        "vramlab.gpu",
        "vramlab_course.widgets",
        "vramlab_course.plots",
    ),
    *(
        f"vramlab_course.lessons.{path.parent.name}.{path.stem}"
        for kind in ("experiment", "explorer", "picture")
        for path in sorted(ROOMS.glob(f"*/*{kind}.py"))
    ),
)
"""What the process that is forked has imported. No lesson's own state: nothing here has run."""

_INLINE = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
"""What ipykernel sets before matplotlib is imported."""


_NOBODY_KNOWS = 255
"""What `multiprocessing` says of a fork whose server is gone."""

_LOG = logging.getLogger(__name__)


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run a notebook in its folder, as JupyterLab does.

    Raises:
        CellExecutionError: a cell failed.
        CellTimeoutError: a cell does not end.
        DeadKernelError: the kernel died; the log says of what.
    """
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        kernel_manager_class=ForkedKernelManager,
        resources={"metadata": {"path": folder}},
        timeout=STUCK_S,
    )
    asyncio.run(client.async_execute())


class ForkedKernelManager(AsyncKernelManager):
    """Starts kernels as forks; for `nbclient.NotebookClient(kernel_manager_class=...)`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(kernel_spec_manager=_ForkedKernels(), **options)


class _ForkedKernels(KernelSpecManager):
    """Jupyter's table of kernels, in which every kernel is started by a `_Provisioner`."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        spec = super().get_kernel_spec(kernel_name)
        spec.metadata["kernel_provisioner"] = {"provisioner_name": PROVISIONER}
        provisioners = KernelProvisionerFactory.instance().provisioners
        group = KernelProvisionerFactory.GROUP_NAME
        provisioners[PROVISIONER] = EntryPoint(PROVISIONER, f"{__name__}:_Provisioner", group)
        return spec


class _Provisioner(LocalProvisioner):
    """Jupyter's own provisioner, but the process is a fork."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        self.process = _Fork(arguments, str(kwargs.get("cwd") or os.getcwd()), kwargs["env"])
        self.pid = self.process.pid
        return self.connection_info

    async def poll(self) -> int | None:
        """Return its exit status, and log how it ended unless it was stopped.

        Who waits for an answer hears no more than that the kernel died.
        """
        status = await super().poll()
        if status and self.process is not None and not self.process.was_told_to_end:
            _LOG.error("The kernel ended by itself: %s", how_it_ended(status))
        return status


class _Fork:
    """A forked kernel, with the methods of `subprocess.Popen` that provisioners use."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: Sequence[str], folder: str, environ: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(IMPORTED))
        self._process: ForkServerProcess = context.Process(
            target=_be_a_kernel, args=(list(arguments), folder, dict(environ))
        )
        before = {name: os.environ.get(name) for name in _INLINE}
        os.environ.update(_INLINE)
        try:
            self._process.start()
        finally:
            _restore(before)
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        self.was_told_to_end = False
        # `multiprocessing` waits at the end for all that were started, also where a start was
        # given up half-way.
        atexit.register(self.kill)

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self) -> int | None:
        self._process.join()
        atexit.unregister(self.kill)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        self.was_told_to_end |= number != signal.SIGINT
        if self.poll() is None:  # afterwards its number may be another process's
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def how_it_ended(status: int) -> str:
    """Say what a process ended with, from what `Process.exitcode` gives."""
    if status == -signal.SIGKILL:
        return "SIGKILL, which the system sends where memory is short"
    if status < 0:
        return signal.Signals(-status).name
    if status == _NOBODY_KNOWS:
        return f"status {status}, or the process of which it was forked ended before it"
    return f"status {status}"


def _restore(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _be_a_kernel(arguments: list[str], folder: str, environ: dict[str, str]) -> None:
    """Run `python -m ipykernel_launcher ARGUMENTS...` in this process."""
    from ipykernel.kernelapp import IPKernelApp

    # Collections of garbage go over what the kernel has made, not over all that was imported.
    gc.freeze()
    # The kernel itself says nothing when it crashes, and catches what is written to stderr by then.
    faulthandler.enable(os.dup(sys.__stderr__.fileno()))
    os.setpgrp()  # an interrupt of the kernel reaches only what it has started
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    tests = os.path.dirname(__file__)
    sys.path[:] = [path for path in sys.path if not (path + os.sep).startswith(tests + os.sep)]
    sys.argv = ["ipykernel_launcher", *arguments]
    # A kernel that has a parent says nothing on stdout, and ends when the parent is gone.
    IPKernelApp.launch_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
