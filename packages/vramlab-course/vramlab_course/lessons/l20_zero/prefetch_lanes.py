"""When FSDP2 sends what: the next layer's parameters travel while this layer computes.

The order is that of torch/distributed/fsdp/_fully_shard (PyTorch 2.13), one layer ahead: an
all-gather begins when the one before it has been copied out, which is when its layer begins to
compute; a reduce-scatter begins when its layer's backward pass has ended. All of them share one
link, in the order in which they are issued. The last layer is freed after forward, and gathered
again at once: FSDP2 waits for its `_reshard_after_forward_event`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.collectives import Interconnect, link_seconds, ring_sent_bytes
from vramlab.cuda_rules.durations import compute_seconds
from vramlab.measure import Category
from vramlab_course.plots.lanes import Span, draw_lanes
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.style import (
    BACKWARD_LOOK,
    CATEGORY_LOOKS,
    FORWARD_LOOK,
    GATHERED_LOOK,
    Look,
)

_FORWARD, _BACKWARD = "forward", "backward"
_GATHER, _SCATTER = "all-gather of parameters", "reduce-scatter of gradients"
_LOOKS: Mapping[str, Look] = {
    _FORWARD: FORWARD_LOOK,
    _BACKWARD: BACKWARD_LOOK,
    _GATHER: GATHERED_LOOK,
    _SCATTER: CATEGORY_LOOKS[Category.GRADIENTS],
}


@dataclass(frozen=True)
class LayerTimes:
    """Seconds that one layer takes on one rank."""

    forward_s: float
    gather_s: float
    scatter_s: float

    @property
    def backward_s(self) -> float:
        """Two matrix products for each one of the forward pass."""
        return 2 * self.forward_s


def prefetch_lanes(layers: int, times: LayerTimes) -> tuple[list[Span], list[Span]]:
    """Put a step of stage 3 in time: what the GPU computes, and what its link carries.

    Args:
        layers: of equal size, each sharded alone.
        times: of one of them.
    """
    computes: list[Span] = []
    sends: list[Span] = []
    free_s = 0.0  # when the link has sent all that was issued

    def send(kind: str, ready_s: float, seconds: float, label: str) -> float:
        nonlocal free_s
        start_s = max(free_s, ready_s)
        free_s = start_s + seconds
        sends.append(Span(kind, start_s, free_s, label))
        return free_s

    order = [(_FORWARD, n) for n in range(1, layers + 1)]
    order += [(_BACKWARD, n) for n in range(layers, 0, -1)]
    end_s = 0.0
    there_s = send(_GATHER, 0.0, times.gather_s, "1")
    for place, (kind, layer) in enumerate(order):
        start_s = max(end_s, there_s)
        end_s = start_s + (times.forward_s if kind == _FORWARD else times.backward_s)
        if place + 1 < len(order):
            following = order[place + 1][1]
            # The last layer is freed after its forward pass, and only then gathered again.
            ready_s = end_s if following == layer else start_s
            there_s = send(_GATHER, ready_s, times.gather_s, str(following))
        computes.append(Span(kind, start_s, end_s, str(layer)))
        if kind == _BACKWARD:
            send(_SCATTER, end_s, times.scatter_s, str(layer))
    return computes, sends


def waiting_share(computes: list[Span]) -> float:
    """Return the fraction of the time up to the end of backward in which nothing is computed."""
    busy_s = sum(span.end_s - span.start_s for span in computes)
    return 1 - busy_s / computes[-1].end_s


def draw_prefetch(
    card: GPUModel,
    *,
    links: tuple[Interconnect, ...],
    width: int,
    tokens: int,
    ranks: int,
    layers: int = 4,
    utilization: float = 0.5,
) -> Picture:
    """Draw a step of stage 3 in bfloat16, computing above sending, for each link between the GPUs.

    Args:
        card: whose peak figures count.
        links: between the GPUs, such as ("NVLink", "PCI Express").
        width: of the layers, square matrices.
        tokens: on each rank.
        ranks: around a ring.
        layers: of the chain.
        utilization: fraction of the card's peak FLOP/s that the layers reach.
    """
    layer_bytes = 2 * width**2
    forward_s = compute_seconds(2 * width**2 * tokens, card, "float16") / utilization
    lanes: dict[str, list[Span]] = {}
    shares = []
    for link in links:
        times = LayerTimes(
            forward_s,
            link_seconds(ring_sent_bytes("all-gather", layer_bytes, ranks), card, link),
            link_seconds(ring_sent_bytes("reduce-scatter", layer_bytes, ranks), card, link),
        )
        computes, sends = prefetch_lanes(layers, times)
        lanes |= {f"{link}:\ncomputes": computes, f"{link}:\nsends": sends}
        shares.append(f"{waiting_share(computes):.0%} over {link}")
    return draw_lanes(
        lanes,
        _LOOKS,
        title=f"One layer ahead: the GPU waits {' and '.join(shares)}",
        assumes=(
            f"Modelled: {tokens:,} tokens on each of {ranks} {card.name}, "
            f"{utilization:.0%} of peak FLOP/s, links at full rate."
        ),
    )
