"""Generates exercises/ from solutions/ by nbgrader's release step, without touching a gradebook.

python -m vramlab_classroom.nbgrader.release            # write what changed in exercises/
python -m vramlab_classroom.nbgrader.release --check    # compare only; status 1 if something is
stale
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from vramlab.progress import working


def course_config(root: Path) -> Config:
    """Read the settings of a course."""
    config = PyFileConfigLoader("nbgrader_config.py", path=str(root / "autograder")).load_config()
    assert isinstance(config, Config)
    return config


def release(root: Path, destination: Path) -> list[Path]:
    """Generate the release version of every exercise of the course in `root`.

    Returns:
        The notebooks that were written: `destination/<exercise>/<exercise>.ipynb`.
    """
    config = course_config(root)
    # nbgrader takes an absolute folder as it is.
    config.CourseDirectory.release_directory = str(destination)
    written = []
    with tempfile.TemporaryDirectory() as scratch, working("generating exercises") as step:
        config.CourseDirectory.db_url = f"sqlite:///{scratch}/gradebook.db"
        for master in sorted((root / "solutions").glob("*/*.ipynb")):
            name = master.stem
            step.tell(name)
            config.CourseDirectory.assignment_id = name
            converter = GenerateAssignment(CourseDirectory(config=config), config=config)
            converter.log.setLevel(logging.ERROR)
            converter.start()
            written.append(destination / name / master.name)
    return written


def stale(root: Path, *, update: bool = False) -> list[str]:
    """List the exercises whose file in exercises/ is not what solutions/ gives.

    Args:
        root: of the course.
        update: write these files, and no others.
    """
    with tempfile.TemporaryDirectory() as scratch:
        fresh = release(root, Path(scratch))
        outdated = [path for path in fresh if not _same(path, _committed(root, path))]
        for path in outdated if update else ():
            _committed(root, path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, _committed(root, path))
        return [path.stem for path in outdated]


def _committed(root: Path, path: Path) -> Path:
    return root / "exercises" / path.stem / path.name


def _same(fresh: Path, committed: Path) -> bool:
    return committed.exists() and committed.read_bytes() == fresh.read_bytes()


def main() -> int:
    """Run the command line; answer the exit status."""
    parser = argparse.ArgumentParser(prog="python -m vramlab_classroom.nbgrader.release")
    parser.add_argument("--check", action="store_true", help="write nothing, compare only")
    arguments = parser.parse_args()
    root = Path.cwd()
    outdated = stale(root, update=not arguments.check)
    if not arguments.check:
        for name in outdated:
            print(Path("exercises", name, f"{name}.ipynb"))
        return 0
    for name in outdated:
        print(f"exercises/{name} is not what solutions/{name} gives: run `make notebooks`")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
