"""Sparse tensors on a GPU: their parts have blocks, and products with dense matrices."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from vramlab.cuda_rules.cub import merge_sort_bytes
from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")

NODES, EDGES, WIDTH = 2708, 13264, 64
ENTRIES = 106_496  # an int64 for each edge, 106,112 B, as a block: the next multiple of 512
VALUES = 53_248  # a float32 for each: 53,056 B
DENSE = 693_248  # 2708 x 64 float32


def graph(coalesced: bool) -> Tensor:
    places = torch.arange(EDGES) * (NODES * NODES // EDGES)
    indices = torch.stack((places // NODES, places % NODES))
    made = torch.sparse_coo_tensor(
        indices, torch.ones(EDGES), (NODES, NODES), is_coalesced=coalesced
    )
    return made.cuda()


def grown() -> tuple[int, int]:
    """Give what is allocated and what was at most, and forget the peak."""
    found = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return found


def test_a_sparse_tensor_is_its_indices_and_values(gpu: VirtualGPU) -> None:
    moved = graph(coalesced=True)
    assert (moved.device.type, moved.is_cuda, moved._nnz()) == ("cuda", True, EDGES)
    assert moved.is_coalesced()
    # Indices are 2 x 13264 int64, 212,224 B: a block of 212,480.
    assert torch.cuda.memory_allocated() == 212_480 + VALUES
    assert moved.double().values().dtype == torch.float64


def test_a_transpose_is_a_copy_with_a_row_beside(gpu: VirtualGPU) -> None:
    moved = graph(coalesced=True)
    before, _ = grown()
    turned = moved.t()
    after, peak = grown()
    assert (turned._nnz(), turned.is_coalesced()) == (EDGES, False)
    assert after - before == 212_480 + VALUES
    assert peak - after == ENTRIES  # as PyTorch 2.13 does on the native engine: 372,224 in all


def test_coalescing_sorts_places(gpu: VirtualGPU) -> None:
    moved = graph(coalesced=False)
    before, _ = grown()
    summed = moved.coalesce()
    after, peak = grown()
    assert summed.is_coalesced()
    assert after - before == 212_480 + VALUES
    # Of the sort: both columns, 106,240 B each as parts of one piece; 8 tiles' beginnings.
    assert merge_sort_bytes(EDGES, 8, 8) == 2 * 106_240 + 256 + 255
    assert peak - before == 3 * ENTRIES + 212_480 + VALUES


def test_entries_of_known_places_are_added_up(gpu: VirtualGPU) -> None:
    """Of 300 rows for 100 words, each thrice: 100 x 64 float32, as on the native engine."""
    words = (torch.arange(300) % 100).cuda()
    rows = torch.sparse_coo_tensor(words[None], torch.ones(300, 64, device="cuda"), (1000, 64))
    before, _ = grown()
    summed = rows.coalesce()
    assert (summed._nnz(), tuple(summed.values().shape)) == (100, (100, 64))
    after, peak = grown()
    # The 300 indices, 2400 B in a block of 2560, are cut to 100 in place. Beside them are the
    # entries' numbers and where each place begins, 2560 each.
    assert after - before == 2560 + 100 * 64 * 4
    assert peak - after == 2 * 2560
    places = torch.stack((words, words // 50))
    assert torch.sparse_coo_tensor(places, words.float(), (100, 2)).coalesce()._nnz() == 100


def rows(count: int = 5000) -> Tensor:
    """Make a gradient of an embedding: indices of 40,448 B, values of 1,280,000 B."""
    places = torch.randint(2000, (1, count), device="cuda")
    return torch.sparse_coo_tensor(places, torch.randn(count, 64, device="cuda"), (20_000, 64))


@pytest.mark.parametrize(
    ("compute", "entries", "grown_bytes", "peak_bytes"),
    [
        # Sums have the entries of both: indices of 80,384 B, and values twice as large.
        (lambda a, b: a + b, 10_000, 80_384 + 2_560_000, 80_384 + 2_560_000),
        (lambda a, b: a - b, 10_000, 80_384 + 2_560_000, 80_384 + 2_560_000 + 1_280_000),
        (lambda a, b: a.add_(b), 10_000, 80_384 - 40_448 + 1_280_000, 80_384 + 2_560_000),
        (lambda a, b: a.sub_(b), 10_000, 80_384 - 40_448 + 1_280_000, 80_384 + 3_840_000),
        (lambda a, b: a * 2.0, 5000, 40_448 + 1_280_000, 40_448 + 1_280_000),
        (lambda a, b: a.mul_(0.5), 5000, 0, 40_448 + 1_280_000),
        (lambda a, b: a / 3, 5000, 40_448 + 1_280_000, 40_448 + 1_280_000),
        (lambda a, b: a.div_(3), 5000, 0, 0),
        (lambda a, b: -a, 5000, 40_448 + 1_280_000, 40_448 + 1_280_000),
        (lambda a, b: a.copy_(b), 5000, 0, 40_448 + 1_280_000),
        (lambda a, b: torch.ones(20_000, 64, device="cuda") + a, None, 5_120_000, 10_240_000),
        (lambda a, b: a.to_dense(), None, 5_120_000, 5_120_000),
    ],
)
def test_arithmetic(
    gpu: VirtualGPU,
    compute: Callable[[Tensor, Tensor], Tensor],
    entries: int | None,
    grown_bytes: int,
    peak_bytes: int,
) -> None:
    """As PyTorch 2.13 does on the native engine."""
    a, b = rows(), rows()
    before, _ = grown()
    made = compute(a, b)
    after, peak = grown()
    assert (after - before, peak - before) == (grown_bytes, peak_bytes)
    assert gpu.unreviewed() == {}
    assert (made._nnz() if made.is_sparse else None) == entries


def test_gradients_of_embeddings_are_kept_as_they_are_and_added_up(gpu: VirtualGPU) -> None:
    embedding = nn.Embedding(20_000, 64, sparse=True, device="cuda")
    weight = torch.ones(64, 64, device="cuda")
    places = torch.randint(2000, (5000,), device="cuda")
    kept = []
    for _ in range(3):
        before, _ = grown()
        (embedding(places) @ weight).square().sum().backward()
        kept.append(grown()[0] - before)
    # The first indices are the program's own. With them come cuBLAS's workspaces of two threads.
    assert kept == [1_280_000 + 2 * 8_519_680, 80_384 + 1_280_000, 120_320 - 80_384 + 1_280_000]
    assert embedding.weight.grad is not None
    assert embedding.weight.grad._nnz() == 15_000


def test_sums_have_the_values_of_both() -> None:
    with VirtualGPU("T4", values=True):
        places = torch.tensor([[0, 2]])
        a = torch.sparse_coo_tensor(places, torch.tensor([1.0, 2.0]), (3,)).cuda()
        for made in (a + a, a.clone().add_(a), 2 * a, a.clone().mul_(2)):
            assert made.to_dense().tolist() == [2.0, 0.0, 4.0]
        assert (a - a.clone().mul_(3)).to_dense().tolist() == [-2.0, 0.0, -4.0]


def test_what_is_not_modelled_is_refused_in_one_sentence(gpu: VirtualGPU) -> None:
    for compute in (lambda a: a * a, torch.relu, lambda a: torch.sparse.sum(a, 0)):
        with pytest.raises(UnsupportedOnVirtualGPU, match="not modelled") as failed:
            compute(rows())
        assert len(str(failed.value)) < 400


def test_a_product_takes_zeros_and_a_copy_by_columns(gpu: VirtualGPU) -> None:
    moved, dense = graph(coalesced=True), torch.zeros(NODES, WIDTH, device="cuda")
    dense.requires_grad_()
    before, _ = grown()
    for multiply in (torch.mm, torch.spmm, torch.sparse.mm, torch.matmul):
        product = multiply(moved, dense)
        after, peak = grown()
        assert after - before == DENSE
        # zeros, result, result by columns; 2709 int32 of compressed rows; 13264 int32 of columns
        assert peak - before == 3 * DENSE + 11_264 + VALUES
        if multiply is torch.sparse.mm:
            product.sum().backward()
            assert dense.grad is not None
            dense.grad = None
        del product
        grown()


def test_values_are_right_where_they_are_computed() -> None:
    with VirtualGPU("T4", values=True):
        matrix = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse().cuda()
        product = torch.mm(matrix, torch.ones(2, 2, device="cuda"))
        assert product.cpu().tolist() == [[2.0, 2.0], [3.0, 3.0]]


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("index", [0, 1])
def test_products_are_where_their_operands_are(index: int, values: bool) -> None:
    """C++ makes zeros to add to, after ops elsewhere: on the host, and on the other GPU."""
    with VirtualGPU("T4", 2, values=values):
        places, entries = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([2.0, 3.0, 4.0])
        matrix = torch.sparse_coo_tensor(places, entries, (2, 3)).to(f"cuda:{index}")
        dense = torch.ones(3, 4, device=f"cuda:{index}", requires_grad=True)
        for device in ("cpu", "meta", f"cuda:{1 - index}"):
            torch.ones(2, device=device) + 1
            product = torch.sparse.mm(matrix, dense)
            torch.ones(2, device=device) + 1
            product.sum().backward()
            assert dense.grad is not None
            assert {product.get_device(), dense.grad.get_device()} == {index}
        assert torch.cuda.max_memory_allocated(1 - index) == 2 * 512
        if values:
            assert product.tolist() == [[2.0] * 4, [7.0] * 4]
            assert dense.grad.tolist() == [[3 * 3.0] * 4, [0.0] * 4, [3 * 6.0] * 4]


@pytest.mark.parametrize("values", [False, True])
def test_a_sparse_tensor_is_made_on_the_gpu(values: bool) -> None:
    with VirtualGPU("T4", values=values):
        places = torch.stack((torch.arange(EDGES), torch.arange(EDGES)))
        made = torch.sparse_coo_tensor(
            places, torch.ones(EDGES), (EDGES, EDGES), device="cuda", requires_grad=True
        )
        assert made.is_cuda
        assert made.requires_grad
        assert made.shape == (EDGES, EDGES)
        assert torch.cuda.memory_allocated() == 212_480 + VALUES
        # Without a size, which is read from the indices; and of lists.
        assert torch.sparse_coo_tensor(places, torch.ones(EDGES), device="cuda").is_cuda
        listed = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), device="cuda:0")
        assert (listed @ torch.ones(2, 3, device="cuda")).shape == (2, 3)
        assert torch.sparse_coo_tensor((2, 3), device="cuda").shape == (2, 3)
        host = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
        assert host.device.type == "cpu"
        assert torch.sparse_coo_tensor(places, torch.ones(EDGES), device="cpu").is_cpu


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("made_on", ["the GPU", "the GPU by its parts", "the host"])
def test_compressed_tensors_are_refused_plainly(gpu: VirtualGPU, made_on: str) -> None:
    rows, columns, entries = torch.tensor([0, 1, 3]), torch.tensor([2, 0, 2]), torch.ones(3)
    parts = (rows, columns, entries)
    if made_on == "the GPU by its parts":
        parts = (rows.cuda(), columns.cuda(), entries.cuda())
    options = {"device": "cuda"} if made_on == "the GPU" else {}
    with pytest.raises(UnsupportedOnVirtualGPU, match=r"torch\.sparse_coo"):
        torch.sparse_csr_tensor(*parts, size=(2, 3), **options).cuda()
    assert torch.sparse_csr_tensor(rows, columns, entries, size=(2, 3)).to_dense().sum() == 3
