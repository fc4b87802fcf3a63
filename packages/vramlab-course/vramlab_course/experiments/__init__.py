"""The documents' experiments, as programs: run one, and see predicted, measured and published.

    import vramlab
    from vramlab_course import experiments
    vramlab.attach("A100-40GB")
    outcome = experiments.run("three-linear")
    outcome                                      # a table, in a notebook; print(outcome) elsewhere
    outcome["forward"].growth_bytes              # an int
    outcome.finding("three-linear-peak").verdict

An experiment measures through torch's own interface on whatever GPU is attached.
`run_as_published` attaches the virtual GPU, and stands for the PyTorch, that the documents had.

The programs are in the rooms of the lessons that show them (`vramlab_course.lessons`), in modules
that end in `experiment`; they are imported when one is asked for.
"""

from vramlab_course.experiments.journey import explained_by, measure_journey
from vramlab_course.experiments.outcome import (
    Difference,
    FigureVerdict,
    Finding,
    Outcome,
    findings_table,
)
from vramlab_course.experiments.published import Figure, figure, figures
from vramlab_course.experiments.registry import (
    Conditions,
    Experiment,
    experiment,
    get,
    names,
    run,
    run_as_published,
)
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.on_access import modules_of

__all__ = [
    "Conditions",
    "Difference",
    "Experiment",
    "Figure",
    "FigureVerdict",
    "Finding",
    "Outcome",
    "Trial",
    "expected",
    "experiment",
    "explained_by",
    "figure",
    "figures",
    "findings_table",
    "get",
    "measure_journey",
    "names",
    "run",
    "run_as_published",
]

__getattr__ = modules_of(__name__)
