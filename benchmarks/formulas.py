"""Predicted beside measured, for the page of all formulas: every experiment, on virtual GPUs.

    python -m benchmarks.formulas    run all experiments (minutes), and write formulas.json

`python -m benchmarks.pages` then puts what is written there onto the pages.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from vramlab.progress import working
from vramlab_course.experiments.formula_checks import FormulaCheck, check_formulas

CHECKS_FILE = Path(__file__).with_name("formulas.json")


def read_checks(path: Path = CHECKS_FILE) -> list[FormulaCheck]:
    """Read what was written when the experiments ran last."""
    return [FormulaCheck(**each) for each in json.loads(path.read_text(encoding="utf-8"))]


def write_checks(checks: list[FormulaCheck], path: Path = CHECKS_FILE) -> None:
    """Write what the experiments came to."""
    text = json.dumps([asdict(check) for check in checks], indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    with working("running all experiments") as step:
        write_checks(check_formulas(tell=step.tell))
