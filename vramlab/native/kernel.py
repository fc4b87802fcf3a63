"""The Jupyter kernel that runs notebooks on the native engine."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from vramlab.catalogue import GPUModel
from vramlab.native.builds import Build
from vramlab.native.gpu import describe

_KEEP_VALUES = (
    "__import__('vramlab.native.values', fromlist=['KnownValues']).KnownValues().__enter__()"
)
"""The first line that the kernel runs; it leaves no name in the notebook."""

DISPLAY_NAME = "Python 3 (virtual GPU, native)"
NAME = "vramlab-native"


def install(build: Build, gpu: GPUModel, count: int = 1) -> Path:
    """Install the kernel for the user, replacing an older one.

    Args:
        build: from `setup.find`.
        gpu: from the catalogue.
        count: how many of it.

    Returns:
        The folder that has its `kernel.json`.

    Raises:
        ModuleNotFoundError: there is no Jupyter here.
        NativeEngineError: too few or too many GPUs.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(specification(build, gpu, count), indent=2)
        Path(folder, "kernel.json").write_text(f"{text}\n", encoding="utf-8")
        return Path(KernelSpecManager().install_kernel_spec(folder, NAME, user=True))


def specification(build: Build, gpu: GPUModel, count: int = 1) -> dict[str, object]:
    """Write the kernel's `kernel.json`: `vramlab native run` starts IPython's kernel.

    Source: jupyter_client's documentation, "Kernel specs".

    Raises:
        NativeEngineError: too few or too many GPUs.
    """
    describe(gpu, count)
    engine = ["--torch", build.torch_version, "--gpu", gpu.name, "--count", str(count)]
    kernel = ["-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel += [f"--IPKernelApp.exec_lines={_KEEP_VALUES}"]
    return {
        "argv": [sys.executable, "-m", "vramlab", "native", "run", *engine, *kernel],
        "display_name": DISPLAY_NAME,
        "language": "python",
        "metadata": {"debugger": True},
    }
