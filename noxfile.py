"""Tries the project on every Python and PyTorch that it promises, and as what is published.

    nox --list
    nox -s "tests(python='3.11', torch='2.12.1')"                  # all tests there
    nox -s "tests(python='3.11', torch='2.12.1')" -- tests/vramlab/gpu
    nox -s "without_cuda(torch='2.15.0')" -- tests/vramlab/gpu     # Linux; 0.5 GiB to fetch, not 3
    nox -s distributions wheel                                     # build, and try what was built

`make matrix` runs all tests everywhere. Pythons are looked for on the PATH. The workflows in
`.github/workflows` call these sessions, and name none that is not here.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import nox

ROOT = Path(__file__).parent
LOCK = ROOT / "requirements.txt"
LESSONS = ROOT / "lessons"
DISTRIBUTIONS = ROOT / "dist"
PROJECTS = (".", "packages/vramlab-classroom", "packages/vramlab-course")
EDITABLE = [word for project in PROJECTS for word in ("--editable", project)]

PYTHONS = nox.project.python_versions(nox.project.load_toml(ROOT / "pyproject.toml"))
"""Those of the classifiers."""

TORCHES = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
"""The newest of each minor version that vramlab knows (`vramlab.torch_versions`).

`tests` installs a PyTorch as pip does. From an index of CPU builds that is 0.2 GiB; elsewhere, on
Linux, it is the CUDA build with 3 GiB of NVIDIA's libraries, which `without_cuda` leaves out."""

NIGHTLY = "nightly"
"""The newest there is, whatever pyproject.toml takes: a nightly build where PIP_EXTRA_INDEX_URL
names PyTorch's index of those, else the newest release."""

CHOSEN_BY_TORCH = ("torch", "setuptools")
"""What differs from the lock: PyTorch 2.11 and 2.12 take setuptools below 82 only."""

nox.options.reuse_venv = "yes"
nox.options.sessions = ["tests"]


@nox.session
@nox.parametrize(
    "python, torch",
    [*((python, torch) for python in PYTHONS for torch in TORCHES), (PYTHONS[-1], NIGHTLY)],
)
def tests(session: nox.Session, torch: str) -> None:
    """Run all tests with this PyTorch and else what the lock says; pytest gets what follows --."""
    wanted = ["--upgrade", "--pre", "torch"] if torch == NIGHTLY else [f"torch=={torch}"]
    session.install(*wanted, "--requirement", _rest_of_lock(session))
    session.install("--no-deps", *EDITABLE)
    session.run("python", "-c", "import torch; print('torch', torch.__version__)")
    session.run("pytest", "-n", "auto", "--dist", "loadscope", *session.posargs)


@nox.session
@nox.parametrize("torch", TORCHES)
def without_cuda(session: nox.Session, torch: str) -> None:
    """Run tests with this PyTorch's CUDA build on the native engine's stub libraries (Linux)."""
    # What the lock has depends on torch, which comes from elsewhere: so no dependencies.
    session.install("--no-deps", "--requirement", _rest_of_lock(session))
    session.install("--no-deps", *EDITABLE)
    under = ("python", "-m", "benchmarks.torch_on_stubs", torch, "-m")
    session.run(*under, "pytest", "-n", "auto", "--dist", "loadscope", *session.posargs)


@nox.session
def distributions(session: nox.Session) -> None:
    """Build what is published, wheels from source distributions, and check their metadata."""
    session.install("--requirement", ROOT / ".ci" / "tools" / "release.txt")
    shutil.rmtree(DISTRIBUTIONS, ignore_errors=True)
    for project in PROJECTS:
        session.run("python", "-m", "build", "--outdir", DISTRIBUTIONS, project)
    session.run("twine", "check", "--strict", *DISTRIBUTIONS.iterdir())


@nox.session(reuse_venv=False)
def wheel(session: nox.Session) -> None:
    """Try the engine's wheel where nothing else is; then with the course's, on all lessons."""
    (engine,) = DISTRIBUTIONS.glob("vramlab-*.whl")
    lessons = [Path(name).resolve() for name in session.posargs or sorted(LESSONS.glob("*.ipynb"))]
    session.chdir(session.cache_dir)  # not where the checkout's package would be found
    session.install(engine)
    session.run("python", "-I", ROOT / ".ci" / "try_wheel.py")
    session.install(*DISTRIBUTIONS.glob("*.whl"), "ipython")
    session.run("python", "-I", ROOT / ".ci" / "try_wheel.py", "--course")
    for lesson in lessons:
        run = f"%run {shlex.quote(str(lesson))}"
        session.run("python", "-I", "-m", "IPython", "--no-banner", "-c", run, silent=True)


def _rest_of_lock(session: nox.Session) -> Path:
    """Write the lock without what PyTorch chooses."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.partition("==")[0] not in CHOSEN_BY_TORCH]
    path = session.cache_dir / "rest-of-lock.txt"
    path.write_text("\n".join([*kept, ""]), encoding="utf-8")
    return path
