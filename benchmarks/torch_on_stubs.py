"""Run Python with another PyTorch than the installed one, without fetching CUDA's libraries.

    python -m benchmarks.torch_on_stubs 2.15.0 -m pytest tests/vramlab/gpu
    python -m benchmarks.torch_on_stubs 2.15.0 -c "import torch; print(torch.__version__)"

PyTorch's CUDA wheel needs 3 GiB of NVIDIA's libraries to be imported. Alone, on the stub libraries
that the native engine compiles, it is 0.5 GiB to fetch, and has no GPU: the portable engine runs
under it as under a CPU build. Linux x86-64 only. The rest comes from the running environment.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from vramlab import native, streams
from vramlab.errors import VramlabError
from vramlab.native import Build

ROOT = Path(__file__).parents[1]


def environment(build: Build) -> dict[str, str]:
    """Return the environment variables with which Python finds a build's PyTorch.

    There is no GPU: the stub libraries only have GPUs that an environment variable describes.
    Without one, NVML's library cannot initialize, of which PyTorch 2.11 warns wherever it counts
    GPUs. So, as on any machine without a driver, there is no such library.
    """
    no_driver = build.folder / "no-driver"
    no_driver.mkdir(exist_ok=True)
    for library in build.libraries.glob("*.so*"):
        link = no_driver / library.name
        if not library.name.startswith("libnvidia-ml") and not link.is_symlink():
            link.symlink_to(library)
    folders = [str(ROOT), str(build.site), str(build.preloads), os.environ.get("PYTHONPATH", "")]
    libraries = [str(no_driver), os.environ.get("LD_LIBRARY_PATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, folders)),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Set the version up if it is not, and run Python with the other arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.torch_on_stubs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("version", help="of PyTorch, such as 2.15.0")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="what follows python")
    wanted = parser.parse_args(arguments)
    try:
        build = native.set_up(wanted.version, report=streams.print_error)
    except VramlabError as error:
        streams.print_error(f"torch_on_stubs: {error}")
        return 2
    return subprocess.run([sys.executable, *wanted.words], env=environment(build)).returncode


if __name__ == "__main__":
    raise SystemExit(main())
