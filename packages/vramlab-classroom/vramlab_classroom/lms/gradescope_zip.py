"""The autograder zip for Gradescope: everything that grades one exercise there.

It holds `setup.sh`, which Gradescope runs once, and `run_autograder`, which it runs for each
submission; this package, the versions that it was tested with, and the seed of the hidden cases. It
holds no solution.

Source: "Autograder Specifications" and "Code Autograder Best Practices" in docs/ of
gradescope/autograder_samples.
"""

from __future__ import annotations

import io
import shlex
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from string import Template

from vramlab.errors import VramlabError
from vramlab_classroom.run.versions import package_files
from vramlab_classroom.sandbox.packages import judging_packages

_SETUP = Template("""\
#!/usr/bin/env bash
# Made by `vramlab gradescope pack`. Gradescope runs it once, when it builds the machine.
set -euo pipefail
autograder=$${AUTOGRADER:-/autograder}
needed='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'

find_python() {
    for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
        if "$$candidate" -c "$$needed" 2>/dev/null; then
            echo "$$candidate"
            return
        fi
    done
}

python=$$(find_python)
if [ -z "$$python" ]; then
    apt-get update
    # Python 3.11 or later is python3 in Ubuntu 24.04, python3.11 in Ubuntu 22.04.
    apt-get install -y python3 python3-venv
    [ -n "$$(find_python)" ] || apt-get install -y python3.11 python3.11-venv
    python=$$(find_python)
fi
if [ -z "$$python" ]; then
    echo 'There is no Python 3.11 or later: choose Ubuntu 24.04 as the base image.' >&2
    exit 1
fi

$index"$$python" -m venv "$$autograder/venv"
"$$autograder/venv/bin/python" -m pip install --no-cache-dir \\
    --requirement "$$autograder/source/requirements.txt"

# Answers are judged as an unprivileged user, who reads packages, but no seed and no results.
chmod -R go= "$$autograder/source/secret"
cd "$$autograder/source"
chmod -R go+rX $packages "$$autograder/venv"
""")

_RUN = Template("""\
#!/usr/bin/env bash
# Made by `vramlab gradescope pack`. Gradescope runs it for each submission.
set -euo pipefail
autograder=$${AUTOGRADER:-/autograder}
export PYTHONPATH="$$autograder/source"
exec "$$autograder/venv/bin/python" -P -m vramlab gradescope run $assignment \\
    --submission "$$autograder/submission" \\
    --seed "$$autograder/source/secret/hidden_seed.txt" \\
    --output "$$autograder/results/results.json"
""")


def autograder_zip(
    root: Path, assignment: str, seed: str, *, index_url: str | None = None
) -> bytes:
    """Make the zip.

    Args:
        root: the course, with its requirements.txt.
        assignment: name of the exercise.
        seed: decides the hidden cases.
        index_url: where pip also looks for packages: for PyTorch's build without CUDA, which is a
            tenth of the other.

    Raises:
        VramlabError: the course has no requirements.txt.
    """
    lock = root / "requirements.txt"
    if not lock.is_file():
        raise VramlabError(f"{lock} is missing: run the command in the course's folder")
    index = f"export PIP_EXTRA_INDEX_URL={shlex.quote(index_url)}\n" if index_url else ""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        infos = {name: f"{name}.dist-info" for name in judging_packages()}
        packages = shlex.join([*infos, *infos.values()])
        setup = _SETUP.substitute(index=index, packages=packages)
        _add(archive, "setup.sh", setup.encode(), mode=0o755)
        run = _RUN.substitute(assignment=shlex.quote(assignment))
        _add(archive, "run_autograder", run.encode(), mode=0o755)
        _add(archive, "requirements.txt", lock.read_bytes())
        _add(archive, "secret/hidden_seed.txt", f"{seed}\n".encode(), mode=0o600)
        folders = {folder: name for name, folder in judging_packages().items()}
        for path in package_files():
            (folder,) = (folder for folder in folders if path.is_relative_to(folder))
            _add(archive, f"{folders[folder]}/{path.relative_to(folder)}", path.read_bytes())
        # By these the packages find each other, installed or not.
        for package, info in infos.items():
            for name in ("METADATA", "entry_points.txt"):
                text = distribution(package).read_text(name) or ""
                _add(archive, f"{info}/{name}", text.encode())
    return file.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file with one date for all, so that the same course gives the same zip."""
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)
