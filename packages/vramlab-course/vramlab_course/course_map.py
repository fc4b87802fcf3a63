"""The map of the course: its parts, and the ways through it. The one place that says so.

README.md, the site and the course's start page show what stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_ROOMS = Path(__file__).parent / "lessons"


def stem_of(number: str) -> str:
    """Return a lesson's name by its number, '02_pages_and_blocks' for '02'; its exercise's too.

    Raises:
        ValueError: there is no such lesson.
    """
    found = [path.name.removeprefix("l") for path in _ROOMS.glob(f"l{number}_*/")]
    if len(found) != 1:
        raise ValueError(f"{len(found)} lessons have the number {number!r}")
    return found[0]


@dataclass(frozen=True)
class Part:
    """Lessons that belong together.

    Attributes:
        number: from 1.
        title: what they are about.
        lessons: their numbers.
        formulas: those that its cheat sheet shows, by their names in `docs.builder.formula_pages`.
    """

    number: int
    title: str
    lessons: tuple[str, ...]
    formulas: tuple[str, ...] = ()

    def stems(self) -> list[str]:
        """Return the names of its lessons."""
        return [stem_of(number) for number in self.lessons]


@dataclass(frozen=True)
class LearningPath:
    """A way through the course.

    Attributes:
        name: such as 'one GPU'.
        aim: for whom it is.
        lessons: their numbers, in order.
    """

    name: str
    aim: str
    lessons: tuple[str, ...]


def _numbers(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"{number:02}" for number in range(first, last + 1))


PARTS = (
    Part(
        1,
        "How GPU memory is allocated",
        _numbers(1, 3),
        ("sizes.tensor_bytes", "sizes.unsplit_remainder_bytes"),
    ),
    Part(
        2,
        "What a training step holds",
        _numbers(4, 8),
        (
            "parameters.linear",
            "parameters.conv2d",
            "parameters.embedding",
            "parameters.layer_norm",
            "parameters.multihead_attention",
            "activations.linear_chain_bytes",
            "kv_cache.KVCache.token_bytes",
        ),
    ),
    Part(
        3,
        "Transformers",
        _numbers(9, 12),
        (
            "attention.quadratic_bytes",
            "per_parameter.zero_states_bytes",
            "tiles.padded",
            "tiles.Tiling.waves",
        ),
    ),
    Part(
        4,
        "Making it fit on one GPU",
        _numbers(13, 18),
        (
            "checkpointing.ChainFlops.step",
            "checkpointing.best_count",
            "float_formats.FloatFormat.epsilon",
            "float_formats.FloatFormat.smallest",
            "offloading.width_to_hide",
        ),
    ),
    Part(
        5,
        "Many GPUs",
        _numbers(19, 23),
        (
            "tensor_parallel.sent_bytes",
            "tensor_parallel.parameters",
            "zero.paper_bytes",
            "zero.paper_moved",
            "zero.padded_rows",
            "pipeline_parallel.PipelineStage.in_flight",
        ),
    ),
    Part(
        6,
        "Current techniques",
        _numbers(24, 30),
        (
            "mixture_of_experts.unused_parameters",
            "mixture_of_experts.capacity",
            "serving.pages",
            "serving.latent_token_bytes",
        ),
    ),
)

PATHS = (
    LearningPath(
        "a weekend",
        "You want to know where the memory goes, and what helps first.",
        ("02", "04", "05", "06", "09", "13", "14", "15"),
    ),
    LearningPath(
        "one GPU",
        "You train on one GPU, and want to make the most of it.",
        (*_numbers(1, 18), "24", *_numbers(28, 30)),
    ),
    LearningPath(
        "many GPUs",
        "You know what a training step holds, and have more than one GPU for it.",
        ("02", "05", "06", "12", *_numbers(19, 23), "25", "26"),
    ),
    LearningPath(
        "serving",
        "You serve a model that others have trained.",
        ("02", "03", "07", "11", "12", "26", "27"),
    ),
    LearningPath(
        "the whole course",
        "You want to predict GPU memory to the byte.",
        _numbers(1, 30),
    ),
)


ONWARD: Mapping[str, tuple[str, ...]] = {
    "01": ("29",),
    "02": ("workshop_a_allocator",),
    "03": ("workshop_a_allocator", "30"),
    "04": ("24",),
    "05": ("30",),
    "06": ("24",),
    "07": ("27", "30"),
    "08": ("workshop_b_checkpoint", "workshop_f_chunked_cross_entropy"),
    "09": ("24",),
    "10": ("27",),
    "11": ("25",),
    "12": ("workshop_f_chunked_cross_entropy",),
    "13": ("30",),
    "14": ("workshop_b_checkpoint", "29"),
    "15": ("28",),
    "16": ("24", "28"),
    "17": ("24", "27"),
    "18": ("29",),
    "19": ("workshop_c_bucketed_ddp", "26"),
    "20": ("workshop_d_fsdp",),
    "21": ("25", "26"),
    "22": ("workshop_e_pipeline",),
    "23": ("25", "26"),
}
"""What goes on from a lesson, by its number: workshops by their names, later lessons by theirs.

Each of these lessons says so at its end, as `onward_line` has it.
"""


def onward_line(number: str, titles: Mapping[str, str]) -> str:
    """Say in Markdown what goes on from a lesson; empty if nothing does.

    Args:
        number: of the lesson.
        titles: of workshops and lessons, by the names of their notebooks.
    """
    links = (_onward_link(further, titles) for further in ONWARD.get(number, ()))
    return f"**Going on from here:** {', '.join(links)}." if number in ONWARD else ""


def _onward_link(further: str, titles: Mapping[str, str]) -> str:
    if further.isdecimal():
        name = stem_of(further)
        return f"[{titles[name]}]({name}.ipynb)"
    return f"[{titles[further]}](../exercises/{further}/{further}.ipynb)"


def paths_table(paths: Iterable[LearningPath] = PATHS, folder: str = "") -> str:
    """Show learning paths as a table in Markdown.

    Args:
        paths: which.
        folder: where lessons are, seen from the page that shows it; such as `lessons/`.
    """
    rows = ["| path | for whom | lessons |", "| --- | --- | --- |"]
    for path in paths:
        links = _links(path.lessons, folder)
        rows.append(f"| **{path.name}** ({len(path.lessons)}) | {path.aim} | {links} |")
    return "\n".join(rows)


def _links(lessons: tuple[str, ...], folder: str) -> str:
    """Lessons one by one where they jump, and as 'first to last' where they follow each other."""
    runs: list[list[str]] = []
    for number in lessons:
        if runs and int(number) == int(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        " to ".join(f"[{n}]({folder}{stem_of(n)}.ipynb)" for n in dict.fromkeys((run[0], run[-1])))
        for run in runs
    )
