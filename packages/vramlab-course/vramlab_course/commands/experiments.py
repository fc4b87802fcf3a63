"""`vramlab experiments`: the documents' experiments; `vramlab experiments run NAME`: one of them.

$ vramlab experiments
$ vramlab experiments run three-linear
$ vramlab experiments run three-linear --gpu H100
$ vramlab experiments run three-linear --gpu real --json
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from vramlab.progress import Step, working
from vramlab.streams import print_error
from vramlab.torch_versions import KNOWN

if TYPE_CHECKING:
    from vramlab.measure import StageMeasurement
    from vramlab_course.experiments import Outcome

_EXIT_OK = 0
_EXIT_USAGE = 2


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `experiments` to the command line."""
    parser = subparsers.add_parser(
        "experiments",
        help="list or run the experiments of the course's source documents",
        description="List the experiments of the course's source documents, or run one with "
        "`vramlab experiments run NAME`.",
        examples=("vramlab experiments", "vramlab experiments run three-linear --gpu T4"),
    )
    parser.set_defaults(run=run, action="list")
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    one = actions.add_parser(
        "run",
        help="run an experiment and compare predicted, measured and published numbers",
        description="Run an experiment and print predicted, measured and published numbers side "
        "by side.",
        examples=("vramlab experiments run three-linear --gpu T4",),
    )
    one.add_argument("name", help="name of the experiment, such as three-linear")
    one.add_argument(
        "--gpu",
        metavar="NAME",
        help="GPU as listed by `vramlab gpus`, or `real` for this machine's GPU (default: the "
        "GPU of the published numbers)",
    )
    one.add_argument(
        "--torch-version",
        metavar="VERSION",
        help=f"PyTorch version to simulate with --gpu: {KNOWN} (default: the installed version, "
        "whose autograd always runs)",
    )
    one.add_argument("--json", action="store_true", help="print JSON, with sizes in bytes")
    one.set_defaults(run=run, action="run")


def run(arguments: argparse.Namespace) -> int:
    """List the experiments or run one; answer the exit status: 2 for an unknown name, else 0."""
    with working("reading the experiments"):
        from vramlab.measure.stages import observed_by
        from vramlab_course import experiments

    if arguments.action == "list":
        print("\n".join(_list()))
        return _EXIT_OK
    try:
        experiments.get(arguments.name)
    except KeyError as unknown:
        print_error(unknown.args[0])
        return _EXIT_USAGE
    with working(f"running {arguments.name}") as step, observed_by(ToldStages(step)):
        outcome = _run(arguments.name, arguments.gpu, arguments.torch_version)
    print(outcome.to_json() if arguments.json else outcome)
    return _EXIT_OK


def _run(name: str, gpu: str | None, torch_version: str | None) -> Outcome:
    import vramlab
    from vramlab_course import experiments

    if gpu is None:
        return experiments.run_as_published(name)
    if gpu == "real":
        vramlab.attach(virtual=False, quiet=True)
        return experiments.run(name)
    with vramlab.VirtualGPU(gpu, torch_version=torch_version):
        return experiments.run(name)


def _list() -> list[str]:
    """One line for each experiment, under a line of headings."""
    from vramlab_course import experiments

    known = [experiments.get(name) for name in experiments.names()]
    rows = [("lesson", "experiment", "question")]
    rows += [(one.lesson, one.name, one.question) for one in known]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


class ToldStages:
    """Observes stages (`vramlab.measure.stages.observed_by`), and tells a line of progress."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def stage_begins(self, name: str) -> None:
        """Show the stage that begins."""
        self._step.tell(name)

    def stage_ended(self, measurement: StageMeasurement) -> None:
        """Tell that it is over."""
        self._step.tell("")
