"""Few numbers that came from the host are known, and what is computed from them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

from vramlab.errors import NoValuesError
from vramlab.gpu import VirtualGPU


def test_there_and_back(gpu: VirtualGPU) -> None:
    lengths = torch.tensor([5, 3, 2], device="cuda")
    assert lengths.tolist() == [5, 3, 2]
    assert lengths.cpu().numpy().tolist() == [5, 3, 2]
    assert lengths[1].item() == 3
    assert lengths.to(torch.int32)[None].cpu().tolist() == [[5, 3, 2]]


def test_strides(gpu: VirtualGPU) -> None:
    table = torch.arange(6).view(2, 3).t()
    assert table.cuda().cpu().tolist() == [[0, 3], [1, 4], [2, 5]]


def test_changes_are_seen(gpu: VirtualGPU) -> None:
    host = torch.tensor([1, 2])
    numbers = host.cuda()
    host += 1
    assert numbers.tolist() == [1, 2]  # a copy
    numbers.copy_(host)
    assert numbers.tolist() == [2, 3]
    numbers.zero_()
    assert numbers.cpu().tolist() == [0, 0]
    numbers.copy_(host)
    numbers[0] = 7
    assert numbers.tolist() == [7, 3]
    numbers[0] = torch.randint(9, (), device="cuda")
    with pytest.raises(NoValuesError):
        numbers.tolist()


def test_many_are_not_kept(gpu: VirtualGPU) -> None:
    """2^16 B are 2^13 whole numbers."""
    assert torch.arange(2**13).cuda().tolist() == list(range(2**13))
    with pytest.raises(NoValuesError):
        torch.arange(2**13 + 1).cuda().tolist()


def test_a_mask_of_a_full_batch_is_known(gpu: VirtualGPU) -> None:
    """16 * 1024 * 8 B = 128 KiB; attention is chosen by whether all of it is 1."""
    mask = torch.ones_like(torch.randint(9, (16, 1024)))
    assert torch.all(mask.cuda() == 1)
    mask[3, 700:] = 0
    with pytest.raises(NoValuesError):
        bool(torch.all(mask.cuda() == 1))


def test_what_is_computed_with_a_random_number_is_unknown(gpu: VirtualGPU) -> None:
    assert (torch.tensor([1, 2]).cuda() * 2).tolist() == [2, 4]
    with pytest.raises(NoValuesError):
        (torch.tensor([1, 2]).cuda() * torch.rand((), device="cuda")).tolist()


def test_counting(gpu: VirtualGPU) -> None:
    counter = torch.zeros((), dtype=torch.long, device="cuda")
    counter += 1
    counter.add_(2, alpha=3)
    assert counter.item() == 1 + 3 * 2


def test_batch_norm_with_the_mean_of_all_batches(gpu: VirtualGPU) -> None:
    norm = nn.BatchNorm1d(4, momentum=None).cuda()  # divides by the number of batches
    for _ in range(3):
        norm(torch.ones(2, 4, device="cuda"))
    assert norm.num_batches_tracked is not None
    assert norm.num_batches_tracked.item() == 3


def zero() -> torch.Tensor:
    """A number that is not known."""
    return torch.randint(1, (), device="cuda")


@pytest.mark.parametrize("known", [True, False])
def test_ctc_loss_with_lengths_on_the_gpu(nan_gpu: VirtualGPU, known: bool) -> None:
    steps, batch, classes, longest = 50, 4, 20, 12
    lengths = [torch.full((batch,), steps), torch.tensor([12, 3, 5, 7])]
    on_gpu = [each.cuda() if known else each.cuda() + zero() for each in lengths]
    targets = torch.ones(batch, longest, dtype=torch.long, device="cuda")

    def peak_of(*lengths: torch.Tensor) -> int:
        log_probs = torch.randn(steps, batch, classes, device="cuda", requires_grad=True)
        torch.cuda.reset_peak_memory_stats()
        nn.functional.ctc_loss(log_probs, targets, *lengths).backward()
        return torch.cuda.max_memory_allocated()

    # The longest target decides how much is taken, and 12 is the longest that fits.
    of_host = peak_of(*lengths)
    assert peak_of(*on_gpu) - of_host == 0


def test_packed_sequences_whose_lengths_a_gpu_computed(nan_gpu: VirtualGPU) -> None:
    tokens = torch.ones(3, 5, dtype=torch.long, device="cuda")
    lengths = (tokens * 2 != zero()).sum(1).cpu()
    packed = rnn.pack_padded_sequence(
        torch.zeros(3, 5, 8, device="cuda"), lengths, batch_first=True, enforce_sorted=False
    )
    assert packed.data.shape == (3 * 5, 8)  # as if all were as long as can be
    assert packed.batch_sizes.tolist() == [3] * 5


def test_packed_sequences_refuse_unknown_lengths_where_reads_are_refused(gpu: VirtualGPU) -> None:
    lengths = (torch.ones(3, 5, device="cuda") * 2 + zero()).sum(1).long().cpu()
    with pytest.raises(NoValuesError, match="pack_padded_sequence"):
        rnn.pack_padded_sequence(torch.zeros(5, 3, 8, device="cuda"), lengths)
