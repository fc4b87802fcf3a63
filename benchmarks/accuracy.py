"""How close each tool that predicts GPU memory comes to what was measured on GPUs.

The virtual GPU, torch's MemTracker, torchinfo, accelerate, and EleutherAI's formulas, each against
the figures that documents publish and against the recordings of real GPUs, in one table. A tool is
compared only on what it claims to predict.

    python -m benchmarks.accuracy            print the tables
    python -m benchmarks.accuracy --write    write accuracy.json, and the pages that show it

It takes about a minute, and some more for each recording.
"""

from __future__ import annotations

import argparse

from benchmarks import neutral, pages
from benchmarks.cases import published_cases
from benchmarks.estimators import TOOLS
from benchmarks.recorded import recorded_cases
from benchmarks.results import (
    RECORDINGS,
    RESULTS_FILE,
    Results,
    fingerprints,
    installed_versions,
)
from benchmarks.scores import Comparison
from vramlab.progress import working


def compare() -> Results:
    """Ask every tool about every case."""
    cases = [*published_cases(), *recorded_cases(RECORDINGS)]
    answers = {}
    with working(f"asking about {len(cases)} cases") as step:
        for name, tool in TOOLS.items():
            step.tell(name)
            answers[name] = tool.estimate(cases)
    comparisons = tuple(
        Comparison(
            case,
            {
                name: answer.estimates_bytes[case.name]
                for name, answer in answers.items()
                if case.name in answer.estimates_bytes
            },
        )
        for case in cases
    )
    failed = {name: answer.failed for name, answer in answers.items() if answer.failed}
    return Results(installed_versions(), fingerprints(), comparisons, failed)


def main() -> None:
    """Compare, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="write accuracy.json and the pages that show it"
    )
    write = parser.parse_args().write
    with neutral.environment():
        results = compare()
    if write:
        RESULTS_FILE.write_text(results.to_json(), encoding="utf-8")
        pages.write()
    else:
        made = pages.parts(results)
        print(made["accuracy"](), made["accuracy-cases"](), sep="\n\n")


if __name__ == "__main__":
    main()
