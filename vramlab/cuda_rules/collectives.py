"""Collectives around a ring: bytes that each rank sends, and a lower bound of the time.

N ranks stand in a ring; each has a tensor of M bytes and sends to its right neighbour only. In a
reduce-scatter, N - 1 times each rank sends a piece of M / N bytes and adds what it gets to its own;
then each has one piece of the sum. In an all-gather, N - 1 times each sends on the latest piece it
has got; then each has all pieces. An all-reduce is the one after the other: 2 (N - 1) M / N bytes
over every link, and with many ranks still less than 2 M.

Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", Journal of Parallel and Distributed Computing 69(2), 2009; the same factors in
doc/PERFORMANCE.md of NVIDIA/nccl-tests. NCCL may choose trees instead, which send no fewer bytes;
where NVSwitch adds (NVLS, with H100 and later), a rank sends about M in an all-reduce, not 2 M.
"""

from __future__ import annotations

from typing import Literal, get_args

from vramlab.catalogue import GPUModel

Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "all-to-all"]
"""Collectives of which it is known what a ring sends."""

Interconnect = Literal["NVLink", "PCI Express"]


def ring_sent_bytes(kind: Kind, whole_bytes: int, ranks: int) -> int:
    """Return the bytes each rank sends to its neighbour; each link of the ring carries as many.

    Args:
        kind: of the collective.
        whole_bytes: the whole tensor: of an all-reduce or broadcast what each rank has at the end,
            of an all-gather what is gathered, of a reduce-scatter what each rank starts with.
        ranks: how many take part.

    Raises:
        ValueError: no such kind, or no ranks.
    """
    if ranks < 1:
        raise ValueError(f"{ranks} ranks: a ring has one at least")
    if kind == "all-reduce":
        return 2 * (ranks - 1) * whole_bytes // ranks
    if kind in ("all-gather", "reduce-scatter", "all-to-all"):
        return (ranks - 1) * whole_bytes // ranks
    if kind in ("broadcast", "reduce"):
        return whole_bytes if ranks > 1 else 0
    raise ValueError(f"No collective named {kind!r}. Known: {', '.join(get_args(Kind))}.")


def interconnects_of(gpu: GPUModel) -> tuple[Interconnect, ...]:
    """Return the connections between GPUs of this model in one machine, fastest first."""
    if gpu.nvlink_bandwidth_bytes_per_s is None:
        return ("PCI Express",)
    return ("NVLink", "PCI Express")


def link_seconds(sent_bytes: int, gpu: GPUModel, interconnect: Interconnect) -> float:
    """Return the lower bound of the time for what one GPU sends, at the catalogue's peak bandwidth.

    Raises:
        ValueError: the GPU has no such link.
    """
    if interconnect not in interconnects_of(gpu):
        raise ValueError(f"{gpu.name} has no {interconnect}: {', '.join(interconnects_of(gpu))}.")
    if interconnect == "PCI Express":
        return sent_bytes / gpu.pcie_bandwidth_bytes_per_s
    assert gpu.nvlink_bandwidth_bytes_per_s is not None  # it is among its interconnects
    return sent_bytes / gpu.nvlink_bandwidth_bytes_per_s
