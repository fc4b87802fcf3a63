"""What first uses take: the H200's recording, and what is assumed of other GPUs."""

from __future__ import annotations

from vramlab import catalogue
from vramlab.cuda_rules.first_uses import first_uses
from vramlab.units import MIB


def test_on_an_h200_it_is_what_was_recorded() -> None:
    """Entry `context`: 92 MiB with the first kernel (90, and a page of its module's data)."""
    uses = first_uses(catalogue.find("H200"))
    assert uses.first_kernel_bytes == (92 - 2) * MIB
    assert uses.cublas_handle_bytes == 64 * MIB  # 222 - 158 MiB: the backward pass's own handle
    assert uses.cudnn_handle_bytes == 8 * MIB
    assert 128 * uses.stream_bytes == 70 * MIB  # 292 - 222 MiB, experiment/stream-layers


def test_elsewhere_the_first_kernel_grows_with_resident_threads() -> None:
    """An RTX 4090 has 128 multiprocessors of 1536 threads: 90 * 196608 / 270336 = 65.5, so 66."""
    uses = first_uses(catalogue.find("RTX-4090"))
    assert uses.first_kernel_bytes == 66 * MIB
    assert uses.cublas_handle_bytes == 8 * MIB
