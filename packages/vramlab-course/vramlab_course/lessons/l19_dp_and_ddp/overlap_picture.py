"""DDP's buckets: they fill while backward runs, and are reduced while it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.collectives import Interconnect, link_seconds, ring_sent_bytes
from vramlab.cuda_rules.durations import peak_flops_per_s
from vramlab.measure import Category
from vramlab_course.plots.diagram import check_drawable
from vramlab_course.plots.lanes import Span, draw_lanes
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import BACKWARD_LOOK, CATEGORY_LOOKS, Look, size_label

_MOST = 16
_BACKWARD, _REDUCED = "backward of a layer", "all-reduce of a bucket"
_LOOKS: Mapping[str, Look] = {
    _BACKWARD: BACKWARD_LOOK,
    _REDUCED: CATEGORY_LOOKS[Category.GRADIENTS],
}


def draw_overlap(
    gradients_bytes: Mapping[str, int],
    buckets: Sequence[Sequence[int]],
    *,
    card: GPUModel,
    rows: Sequence[int],
    ranks: int,
    link: Interconnect = "PCI Express",
    utilization: float = 0.5,
) -> Picture:
    """Draw when each layer's backward pass runs, and when each bucket is reduced.

    The layers are matrices in float32. Backward takes 4 FLOPs for each row and number of a layer; a
    bucket is reduced around a ring as soon as it is full and the one before has been reduced.

    Args:
        gradients_bytes: by layer, in the order of backward: the last layer first.
        buckets: places of the gradients in each bucket; `formulas.buckets(sizes)` gives them.
        card: whose peak figures count.
        rows: on each rank; computing and sending are drawn for each number of rows.
        ranks: how many there are.
        link: between them.
        utilization: fraction of the card's peak FLOP/s that the layers reach.

    Raises:
        ValueError: there are more layers than can be drawn.
    """
    check_drawable(len(gradients_bytes), "layers", 1, _MOST)
    sizes = list(gradients_bytes.values())
    sent_s = link_seconds(ring_sent_bytes("all-reduce", sum(sizes), ranks), card, link)
    lanes: dict[str, list[Span]] = {}
    shares = []
    for count in rows:
        computed_s = count * sum(sizes) / (utilization * peak_flops_per_s(card, "float32"))
        computes, sends = overlap_lanes(
            gradients_bytes, buckets, computed_s / sum(sizes), sent_s / sum(sizes)
        )
        lanes |= {f"{count:,} rows:\nbackward": computes, f"{count:,} rows:\nsends": sends}
        shares.append(f"{overlapped_share(computes, sends):.0%} at {count:,} rows")
    return draw_lanes(
        lanes,
        _LOOKS,
        title=f"Overlapped with the backward pass: {', '.join(shares)}",
        assumes=(
            f"Modelled: {ranks} {card.name} over {link} at full rate, arithmetic at "
            f"{utilization:.0%} of peak."
        ),
    )


def overlap_lanes(
    gradients_bytes: Mapping[str, int],
    buckets: Sequence[Sequence[int]],
    compute_s_per_byte: float,
    send_s_per_byte: float,
) -> tuple[list[Span], list[Span]]:
    """Put the backward pass and the reduction of its buckets in time.

    Args:
        gradients_bytes: by layer, in the order of backward.
        buckets: places of the gradients in each bucket.
        compute_s_per_byte: seconds that backward takes for each byte of gradients.
        send_s_per_byte: seconds that an all-reduce takes for each byte of gradients.
    """
    computes: list[Span] = []
    end_s = 0.0
    for name, size in gradients_bytes.items():
        start_s, end_s = end_s, end_s + size * compute_s_per_byte
        computes.append(Span(_BACKWARD, start_s, end_s, name))
    sends: list[Span] = []
    sizes = list(gradients_bytes.values())
    free_s = 0.0
    for number, bucket in enumerate(buckets, start=1):
        size = sum(sizes[place] for place in bucket)
        start_s = max(free_s, computes[max(bucket)].end_s)
        free_s = start_s + size * send_s_per_byte
        sends.append(Span(_REDUCED, start_s, free_s, f"{number}\n{size_label(size)}"))
    return computes, sends


def overlapped_share(computes: Sequence[Span], sends: Sequence[Span]) -> float:
    """Return the fraction of the sending that happens before the backward pass has ended."""
    over_s = computes[-1].end_s
    hidden_s = sum(max(0.0, min(span.end_s, over_s) - span.start_s) for span in sends)
    return hidden_s / sum(span.end_s - span.start_s for span in sends)
