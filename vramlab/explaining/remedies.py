"""Changes to the program, each tried alone on a trace: what they free, and the peak that remains.

What a block is for is guessed, and so is who still needs it; see `categories`. So these numbers are
exact for the blocks that they name, and the blocks are a guess.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from operator import attrgetter, itemgetter

from vramlab.explaining.categories import (
    Category,
    Phases,
    category_of,
    line_of,
    user_frame,
)
from vramlab.explaining.traces import GPUTrace, Life

Removed = tuple[int, int, int]
"""(first event, event after the last, bytes) that a change does without."""

_LOSSES = ("cross_entropy", "log_softmax", "nll_loss")
_IN_PLACE = ("relu", "leaky_relu", "elu", "silu", "hardtanh", "relu6", "hardswish", "dropout")
"""Functions of torch.nn.functional with an argument `inplace`."""
_CHUNKS = 8
_BORN = attrgetter("born")
_ALIKE = (1, 0.5)
"""Sizes of logits and their gradients as fractions of the loss's blocks; half in bfloat16. The same
of attention scores."""
_LAST_TOKEN = 0.02
"""Fraction of the logits that the last token is at most."""
_WORTH_NAMING = 0.02
"""Fraction of what is allocated at the moment."""
_TOO_SMALL = 1e-5
"""The same, of one block that is not looked at."""


@dataclass(frozen=True)
class Remedy:
    """A change to the program.

    Attributes:
        change: what to do, and where.
        freed_bytes: less allocated at the moment that is explained.
        peak_bytes: the highest allocated memory that remains; if there is a failure, up to it and
            with the request that failed.
    """

    change: str
    freed_bytes: int
    peak_bytes: int


def remedies(gpu: GPUTrace) -> list[Remedy]:
    """Try each change that fits a trace, and list those that lower the peak, the best first."""
    phases, end = Phases.of(gpu), len(gpu.events) + 1
    gpu = _with_failed_request(gpu)
    by_category: dict[Category, list[Life]] = defaultdict(list)
    # Half of a trace's blocks are tiny; to classify a million of them takes half a minute.
    least_bytes = gpu.allocated_bytes[gpu.moment] * _TOO_SMALL
    lives = [life for life in gpu.lives if life.size_bytes > least_bytes]
    for life in lives:
        by_category[category_of(life, phases)].append(life)
    worth = _WORTH_NAMING * gpu.allocated_bytes[gpu.moment]
    highest_bytes = _tried(gpu, "none", ()).peak_bytes
    found = []
    for change, removed in _changes(gpu, lives, by_category, phases, end):
        remedy = _tried(gpu, change, removed)
        lowered_bytes = highest_bytes - remedy.peak_bytes
        if min(remedy.freed_bytes, lowered_bytes) > worth:
            found.append(remedy)
    return sorted(found, key=lambda remedy: -remedy.freed_bytes)


def _changes(
    gpu: GPUTrace,
    large: Sequence[Life],
    lives: Mapping[Category, Sequence[Life]],
    phases: Phases,
    end: int,
) -> Iterator[tuple[str, list[Removed]]]:
    """Name each change, with what it does without over the whole trace."""
    activations = [
        life for life in lives[Category.ACTIVATIONS] if not phases.outlives_backward(life)
    ]  # else they leak
    has_backward = any(phases.backward)
    if activations:
        stacks = _by_stack(activations)
        layers = _layers(stacks.values(), gpu.moment)
        if layers > 1:
            change = f"activation checkpointing, one of {layers} layers at a time"
            change += "" if has_backward else ", if a backward pass follows"
            yield change, list(_beyond_one_layer(stacks, layers, gpu.moment, end))
        if not has_backward:
            forward = sorted((*activations, *lives[Category.TEMPORARIES]), key=_BORN)
            no_longer_needed = _no_longer_needed(forward, end)
            yield "torch.no_grad(), if no backward pass follows", no_longer_needed
    states = _whole_of(lives[Category.STATES], end)
    quarters = [(start, stop, size * 3 // 4) for start, stop, size in states]
    yield "an optimizer with 8-bit states, if they are float32", quarters
    if not phases.backward[max(0, gpu.moment - 1)]:
        gradients = _whole_of(lives[Category.GRADIENTS], end)
        yield "zero_grad(set_to_none=True) before the forward pass", gradients
    losses = [life for life in large if _is_of(life, _LOSSES)]
    if losses:
        parts = [
            (start, stop, size * (_CHUNKS - 1) // _CHUNKS)
            for start, stop, size in _whole_of(_and_alike(losses, large, end), end)
        ]
        yield f"the loss at {_line_of_most(losses)} in {_CHUNKS} checkpointed chunks", parts
    scores = [life for life in activations if _is_softmax(life)]
    if scores:
        yield (
            f"F.scaled_dot_product_attention for the softmax at {_line_of_most(scores)}, if it is "
            "attention's",
            _whole_of(_and_alike(scores, large, end), end),
        )
    for line, removed in _replaced(large, end).items():
        yield f"inplace=True at {line}, if nothing else needs its input", removed
    for line, removed in _rebound(gpu, large, phases).items():
        yield f"del of the old value before {line}", removed


def _no_longer_needed(activations: Sequence[Life], end: int) -> list[Removed]:
    """Find what is freed without a backward pass: all but the newest activation and its input."""
    return [
        (later.born + 1, _stop(life, end), life.size_bytes)
        for life, later in zip(activations, islice(activations, 2, None), strict=False)
        if life.freed is None or life.freed > later.born
    ]


def _with_failed_request(gpu: GPUTrace) -> GPUTrace:
    """Return a trace whose failed request succeeded: changes may make it smaller, too."""
    if not gpu.failures:
        return gpu
    failed = gpu.failures[0]
    request = Life(failed.request_bytes, 0, failed.event, failed.frames)
    until = gpu.allocated_bytes[: failed.event + 1]
    return replace(
        gpu,
        lives=[*(life for life in gpu.lives if life.born < failed.event), request],
        allocated_bytes=[*until, until[-1] + request.size_bytes],
        failures=[replace(failed, event=failed.event + 1)],
    )


def _and_alike(found: Sequence[Life], lives: Sequence[Life], end: int) -> list[Life]:
    """Add to some of the blocks those that live beside them, and have their size or half of it.

    So the logits and their gradients are found by the loss. Some programs cut the last token off.
    """
    largest_bytes = max(life.size_bytes for life in found)

    def is_near(life: Life) -> bool:
        sizes = (part * largest_bytes for part in _ALIKE)
        return any(abs(life.size_bytes - size) <= _LAST_TOKEN * size for size in sizes)

    spans = [(life.born, _stop(life, end)) for life in found if is_near(life)]
    known = set(map(id, found))
    return [
        life
        for life in lives
        if id(life) in known
        or (
            is_near(life)
            and any(life.born < stop and start < _stop(life, end) for start, stop in spans)
        )
    ]


def _stop(life: Life, end: int) -> int:
    """Return the event after a block's last; `end` if it was not freed."""
    return end if life.freed is None else life.freed + 1


def _whole_of(lives: Iterable[Life], end: int) -> list[Removed]:
    return [(life.born + 1, _stop(life, end), life.size_bytes) for life in lives]


_Stack = tuple[int, tuple[tuple[str, int], ...]]
"""The size of a block, and the places in the program that allocated it."""


def _by_stack(lives: Iterable[Life]) -> dict[_Stack, list[Life]]:
    stacks: dict[_Stack, list[Life]] = defaultdict(list)
    for life in lives:
        places = tuple((frame["filename"], frame.get("line", 0)) for frame in life.frames)
        stacks[life.size_bytes, places].append(life)
    return stacks


def _alive(lives: Iterable[Life], moment: int) -> int:
    return sum(life.is_alive(moment) for life in lives)


def _layers(stacks: Iterable[Sequence[Life]], moment: int) -> int:
    """Guess how many layers are alive: most bytes are in stacks with a block for each layer."""
    by_count: Counter[int] = Counter()
    for lives in stacks:
        count = _alive(lives, moment)
        by_count[count] += lives[0].size_bytes * count
    return by_count.most_common(1)[0][0] if by_count else 0


def _beyond_one_layer(
    stacks: Mapping[_Stack, Sequence[Life]], layers: int, moment: int, end: int
) -> Iterator[Removed]:
    """Find what checkpointing drops: a layer's blocks between its forward and its backward pass.

    What each layer begins with stays. It is guessed to have the size of most blocks.
    """
    counts = {key: _alive(lives, moment) for key, lives in stacks.items()}
    alive = {key: count for key, count in counts.items() if 2 * count > layers}
    blocks, size_bytes = Counter[int](), Counter[int]()
    for (size, _), count in alive.items():
        blocks[size] += count
        size_bytes[size] += count * size
    least_bytes = _WORTH_NAMING * max(size_bytes.values())
    sizes = [size for size in blocks if size_bytes[size] >= least_bytes]
    input_bytes = max(sizes, key=lambda size: (blocks[size], -size))
    inputs = min((key for key in alive if key[0] == input_bytes), key=alive.__getitem__)
    one_a_layer = [stacks[key] for key, count in alive.items() if count == layers]
    passes = _passes([lives for lives in one_a_layer if len(lives) == len(one_a_layer[0])], end)
    for life in (life for key in alive.keys() - {inputs} for life in stacks[key]):
        layer = bisect_right(passes, life.born, key=itemgetter(0)) - 1
        if layer >= 0:
            _, forward_end, backward_start = passes[layer]
            stop = min(_stop(life, end), backward_start)
            if forward_end < stop:
                yield forward_end + 1, stop, life.size_bytes


def _passes(stacks: Sequence[Sequence[Life]], end: int) -> list[tuple[int, int, int]]:
    """Find when each layer's forward pass begins and ends, and when its backward pass begins.

    A layer ends with the next one. The last one takes as long as the one before it.

    Args:
        stacks: for each, its blocks layer by layer.
        end: of the trace.
    """
    layers = [
        (
            min(life.born for life in lives),
            min(end if life.freed is None else life.freed for life in lives),
        )
        for lives in zip(*stacks, strict=True)
    ]
    passes, events = [], end
    for (start, freed), (following, _) in pairwise([*layers, (end, end)]):
        if following < freed:
            events = following - start
        passes.append((start, start + events, freed))
    return passes


def _is_of(life: Life, functions: Sequence[str]) -> bool:
    return any(
        str(frame.get("name", "")).rpartition(".")[2] in functions
        and str(frame.get("filename", "")).replace("\\", "/").endswith("nn/functional.py")
        for frame in life.frames
    )


def _is_softmax(life: Life) -> bool:
    """Whether a softmax allocated it: PyTorch's, or a function with that name."""
    return any(str(frame.get("name", "")).rpartition(".")[2] == "softmax" for frame in life.frames)


def _line_of_most(lives: Iterable[Life]) -> str:
    return line_of(max(lives, key=lambda life: life.size_bytes).frames)


def _replaced(lives: Iterable[Life], end: int) -> dict[str, list[Removed]]:
    """Find outputs that could replace their input: the youngest block of their size until then."""
    found: dict[str, list[Removed]] = defaultdict(list)
    youngest: dict[int, Life] = {}
    for life in lives:
        before = youngest.get(life.size_bytes)
        youngest[life.size_bytes] = life
        if before is not None and before.is_alive(life.born) and _is_of(life, _IN_PLACE):
            stop = _stop(before, end)
            if life.freed is not None:
                stop = min(stop, life.freed + 1)
            found[line_of(life.frames)].append((life.born + 1, stop, life.size_bytes))
    return found


def _rebound(gpu: GPUTrace, lives: Sequence[Life], phases: Phases) -> dict[str, list[Removed]]:
    """Find `x = f(...)` in a loop, which frees the old x only after the new one is there."""
    old: dict[tuple[str, int], list[Life]] = defaultdict(list)
    for life in lives:
        if life.free_frames and not phases.backward[life.freed or 0] and user_frame(life.frames):
            line = line_of(life.frames)
            if line_of(life.free_frames) == line:
                old[line, life.size_bytes].append(life)
    found: dict[str, list[Removed]] = defaultdict(list)
    for (line, size_bytes), group in old.items():
        if not any(life.is_alive(gpu.moment) for life in group):
            continue
        same = [life for life in lives if life.size_bytes == size_bytes]
        same = [life for life in same if line_of(life.frames) == line]
        for life in group:
            assert life.freed is not None  # as it has a stack of its release
            for other in islice(same, bisect_right(same, life.born, key=_BORN), None):
                if other.born > life.freed:
                    break
                if list(other.frames) == list(life.frames):
                    found[line].append((other.born, life.freed + 1, size_bytes))
                    break
    return found


def _tried(gpu: GPUTrace, change: str, removed: Iterable[Removed]) -> Remedy:
    """Take bytes out of the recorded levels."""
    last = gpu.failures[0].event if gpu.failures else len(gpu.events)
    less: Counter[int] = Counter()
    freed_bytes = 0
    for start, stop, size_bytes in removed:
        less[start] += size_bytes
        less[stop] -= size_bytes
        freed_bytes += size_bytes if start <= gpu.moment < stop else 0
    peak_bytes = level = 0
    for position in range(last + 1):
        level += less.get(position, 0)
        peak_bytes = max(peak_bytes, gpu.allocated_bytes[position] - level)
    return Remedy(change, freed_bytes, peak_bytes)
