"""DDP's buckets: they fill while backward runs, and travel while it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramlab.measure import Category
from vramlab.units import short_size
from vramlab_course.plots.diagram import STEP, Diagram, check_drawable
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import CATEGORY_LOOKS, fits_in, size_label

_MOST = 16
_WIDTH_IN = 7.5
_EDGES_IN = 0.08  # of a box, which words should not touch


def draw_overlap(
    gradients_bytes: Mapping[str, int],
    buckets: Sequence[Sequence[int]],
    *,
    relative_speed: float = 1.0,
    title: str = "",
) -> Picture:
    """Draw backward layer by layer, the buckets that its gradients fill, and when each is sent.

    For example `draw_overlap(sizes, formulas.data_parallel.buckets(sizes.values()))`. Widths are
    bytes: a layer's time is taken to be as its gradients are large, a bucket is sent as soon as it
    is full and the one before has been sent.

    Args:
        gradients_bytes: by layer, in the order of backward: the last layer first.
        buckets: places of the gradients in each bucket.
        relative_speed: of sending a byte, where computing its gradient is 1.
        title: what is to be seen.

    Raises:
        ValueError: there are more layers than can be drawn.
    """
    check_drawable(len(gradients_bytes), "layers", 1, _MOST)
    sizes = list(gradients_bytes.values())
    sent = _sending(sizes, buckets, relative_speed)
    scale = _WIDTH_IN / max(sum(sizes), sent[-1][1])
    title = title or _finding(sizes, sent)
    diagram = Diagram(2.55, title)
    look = CATEGORY_LOOKS[Category.GRADIENTS]
    rows = {"backward": 1.85, "buckets": 1.1, "network": 0.35}
    for name, y in rows.items():
        diagram.write(0.2, y + 0.24, name, ha="left", small=False, bold=True)
    x = 1.2
    for name, size in gradients_bytes.items():
        width = size * scale
        words = fits_in(f"{name}\n{size_label(size)}", width - _EDGES_IN)
        diagram.box(x, rows["backward"], width - 0.03, 0.48, words, STEP)
        x += width
    for number, (bucket, (start, end)) in enumerate(zip(buckets, sent, strict=True), start=1):
        begin = sum(sizes[: bucket[0]]) * scale
        size = sum(sizes[place] for place in bucket)
        words = fits_in(f"bucket {number}\n{size_label(size)}", size * scale - _EDGES_IN)
        words = words or str(number)
        full = diagram.box(1.2 + begin, rows["buckets"], size * scale - 0.03, 0.48, words, look)
        words = fits_in(f"all-reduce\n{number}", (end - start) * scale)
        travels = diagram.box(
            1.2 + start * scale, rows["network"], (end - start) * scale - 0.03, 0.48, words, look
        )
        diagram.arrow((full.x + full.width, full.y), (travels.x + 0.06, travels.y + travels.height))
    over = 1.2 + sum(sizes) * scale
    diagram.axes.plot([over, over], [0.25, 2.4], color="black", linewidth=1, linestyle=":")
    diagram.write(over - 0.06, 2.46, "backward is over", ha="right")
    return diagram.finish(
        describe_overlap(gradients_bytes, buckets, relative_speed=relative_speed, title=title)
    )


def describe_overlap(
    gradients_bytes: Mapping[str, int],
    buckets: Sequence[Sequence[int]],
    *,
    relative_speed: float = 1.0,
    title: str = "",
) -> str:
    """Say in words what `draw_overlap` draws."""
    sizes, names = list(gradients_bytes.values()), list(gradients_bytes)
    title = title or _finding(sizes, _sending(sizes, buckets, relative_speed))
    listed = "; ".join(
        f"bucket {number}: {', '.join(names[place] for place in bucket)} "
        f"({short_size(sum(sizes[place] for place in bucket))})"
        for number, bucket in enumerate(buckets, start=1)
    )
    return f"{title}. In the order of backward, {listed}."


def _sending(
    sizes: Sequence[int], buckets: Sequence[Sequence[int]], relative_speed: float
) -> list[tuple[float, float]]:
    """When each bucket begins to travel and when it has arrived."""
    times: list[tuple[float, float]] = []
    for bucket in buckets:
        full = float(sum(sizes[: max(bucket) + 1]))
        start = max(full, times[-1][1] if times else 0.0)
        times.append((start, start + sum(sizes[place] for place in bucket) / relative_speed))
    return times


def _finding(sizes: Sequence[int], sent: Sequence[tuple[float, float]]) -> str:
    over = sum(sizes)
    hidden = sum(max(0.0, min(end, over) - start) for start, end in sent)
    share = hidden / sum(end - start for start, end in sent)
    return f"{share:.0%} of what DDP sends travels while backward still computes"
