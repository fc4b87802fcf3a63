"""How close each tool that predicts GPU memory comes to what was measured on GPUs.

The virtual GPU, torch's MemTracker, torchinfo, accelerate, and EleutherAI's formulas, each against
the figures that documents publish and against the recordings of real GPUs, in one table. A tool is
compared only on what it claims to predict.

    python -m benchmarks.accuracy            print the tables
    python -m benchmarks.accuracy --write    write accuracy.json, and the pages that show it

It takes about a minute, and some more for each recording; `--tool` asks one tool alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

from benchmarks import neutral, pages
from benchmarks.estimates.cases import Case, published_cases
from benchmarks.estimates.estimators import TOOLS, Answer
from benchmarks.estimates.recorded import recorded_cases
from benchmarks.estimates.results import (
    RECORDINGS,
    RESULTS_FILE,
    Results,
    fingerprints,
    installed_versions,
)
from benchmarks.estimates.scores import Comparison
from vramlab.progress import working


def compare(names: Collection[str] = TOOLS.keys()) -> Results:
    """Ask tools about every case; of the others, keep what is written.

    Args:
        names: of the tools that are asked.

    Raises:
        SystemExit: what is written was made with other versions, and cannot be kept.
    """
    cases = [*published_cases(), *recorded_cases(RECORDINGS)]
    answers = {} if names == TOOLS.keys() else _written(cases)
    with working(f"asking about {len(cases)} cases") as step:
        for name in names:
            step.tell(name)
            answers[name] = TOOLS[name].estimate(cases)
    comparisons = tuple(
        Comparison(
            case,
            {
                name: answers[name].estimates_bytes[case.name]
                for name in TOOLS
                if case.name in answers[name].estimates_bytes
            },
        )
        for case in cases
    )
    failed = {name: answer.failed for name, answer in answers.items() if answer.failed}
    return Results(installed_versions(), fingerprints(), comparisons, failed)


def _written(cases: Sequence[Case]) -> dict[str, Answer]:
    """Read what the tools have answered before."""
    results = Results.from_json(RESULTS_FILE.read_text(encoding="utf-8"))
    if (results.versions, results.recordings) != (installed_versions(), fingerprints()):
        raise SystemExit("accuracy.json is of other versions or recordings: ask every tool.")
    known = {one.case.name: one.estimates_bytes for one in results.comparisons}
    if known.keys() != {case.name for case in cases}:
        raise SystemExit("accuracy.json is of other cases: ask every tool.")
    return {
        name: Answer(
            {case: estimates[name] for case, estimates in known.items() if name in estimates},
            results.failed.get(name, {}),
        )
        for name in TOOLS
    }


def main() -> None:
    """Compare, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="write accuracy.json and the pages that show it"
    )
    parser.add_argument(
        "--tool",
        action="append",
        choices=TOOLS,
        help="query only this tool again and keep the results of the others; can be repeated",
    )
    arguments = parser.parse_args()
    with neutral.environment():
        results = compare(arguments.tool or TOOLS.keys())
    if arguments.write:
        RESULTS_FILE.write_text(results.to_json(), encoding="utf-8")
        pages.write()
    else:
        made = pages.parts(results)
        print(made["accuracy"](), made["accuracy-cases"](), sep="\n\n")


if __name__ == "__main__":
    main()
