"""Pictures of ideas: the numbers in them, what they refuse, and where their words stand."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle

from vramlab.measure import Category
from vramlab.units import GIB, KIB, MIB
from vramlab_course.lessons.l02_pages_and_blocks.picture import draw_hierarchy
from vramlab_course.lessons.l07_inference.picture import draw_pages
from vramlab_course.lessons.l11_sequence_length.picture import draw_tiles
from vramlab_course.lessons.l13_gradient_accumulation.picture import draw_accumulation
from vramlab_course.lessons.l15_mixed_precision.picture import draw_mixed_precision
from vramlab_course.lessons.l16_lean_optimizers.picture import draw_states
from vramlab_course.lessons.l17_offloading.picture import Trip, draw_travel
from vramlab_course.lessons.l19_dp_and_ddp.star_and_ring_picture import draw_star_and_ring
from vramlab_course.lessons.l20_zero.zero_stages_picture import draw_zero_stages
from vramlab_course.lessons.l21_tensor_parallel.picture import draw_cut_matrices
from vramlab_course.lessons.l26_mixture_of_experts.picture import draw_routing
from vramlab_course.lessons.l27_serving.kept_heads_picture import draw_kept_heads
from vramlab_course.lessons.l27_serving.page_tables_picture import draw_page_tables
from vramlab_course.lessons.l28_eight_bits_and_fewer.eight_bit_linear_picture import (
    draw_eight_bit_linear,
)
from vramlab_course.lessons.l28_eight_bits_and_fewer.scales_picture import draw_scales
from vramlab_course.lessons.l29_compiled_programs.picture import draw_fused
from vramlab_course.plots import MethodCost, Picture, draw_methods

ADDRESS = 4096
SEGMENT = {
    "device": 0,
    "address": ADDRESS,
    "segment_type": "small",
    "total_size": 2 * MIB,
    "allocated_size": 512,
    "blocks": [
        {"size": 512, "requested_size": 4, "state": "active_allocated"},
        {"size": 2 * MIB - 512, "requested_size": 0, "state": "inactive"},
    ],
}
WHOLE = {
    Category.PARAMETERS: 8 * GIB,
    Category.GRADIENTS: 8 * GIB,
    Category.OPTIMIZER_STATES: 16 * GIB,
}
WEIGHT = torch.zeros(64, 16, device="meta")
STATES = {
    "AdamW": {"step": torch.tensor(1.0), "exp_avg": WEIGHT, "exp_avg_sq": WEIGHT},
    "8-bit AdamW": {"step": 1, "first": (WEIGHT.flatten().to(torch.uint8), WEIGHT[0])},
    "Adafactor": {"row_var": WEIGHT[:, :1], "col_var": WEIGHT[:1]},
}
PLACES = {"GPU": {"parameters": 2 * GIB}, "host": {"optimizer states": 8 * GIB}}

DRAWN: dict[str, tuple[Callable[[], Picture], str, tuple[str, ...]]] = {
    "hierarchy": (
        lambda: draw_hierarchy([SEGMENT], {ADDRESS: "x"}),
        "The driver gave 2 MiB; blocks in use take 512 B of it",
        ("x\n4 B", "512 B\nallocated"),
    ),
    "fused": (
        lambda: draw_fused(("add", "tanh", "mul"), 4 * MIB, 8 * MIB),
        "Fused, the temporaries are gone: 4 MiB above the input, 4 MiB less",
        ("add, tanh, mul",),
    ),
    "scales": (
        # 1024 x 1024 numbers: 4 B, 1024 x 4 B, 1024 x 32 B
        lambda: draw_scales(1024, 1024),
        "One large number: who shares its scale is rounded for it",
        ("1,024 x 1,024: 4 KiB of scales", "1,024 x 1,024: 32 KiB of scales"),
    ),
    "eight-bit layer": (
        # 1024 x 1024 B and as much, and two scales
        lambda: draw_eight_bit_linear(1024, 1024, 1024),
        "Three products in 8 bits; 2 MiB stay from forward to backward",
        ("x, E4M3\n1 MiB", "y, 16 bits\n2 MiB", "dW, float32\n4 MiB"),
    ),
    "eight-bit layer that casts again": (
        lambda: draw_eight_bit_linear(2048, 1024, 1024, "8 bits, cast again"),
        "Three products in 8 bits; 4 MiB stay from forward to backward",
        ("W and x,\ncast again",),
    ),
    "pages": (
        # 2 pages of 16 tokens of 1 KiB, of which 20 are there; 8 pages' room if all is reserved
        lambda: draw_pages({"Anna": 20}, page_tokens=16, longest=128, token_bytes=KIB),
        "In pages the cache takes 32 KiB; reserved at once, 128 KiB",
        ("20 tokens: 32 KiB\n12 KiB of it empty",),
    ),
    "page tables": (
        # 3 pages in 4 places: page 0 is in both tables
        lambda: draw_page_tables(
            {"Anna": [0, 2], "Ben": [0, 1]},
            {"Anna": 20, "Ben": 32},
            pages=20,
            page_tokens=16,
            page_bytes=MIB,
        ),
        "A shared prefix is stored once: 3 MiB instead of 4 MiB",
        ("Anna", "20 tokens", "all pages", "dashed: free; a page takes 1 MiB"),
    ),
    "routing": (
        lambda: draw_routing(("a", "b", "c"), ((0, 3), (3, 1), (0, 3)), experts=4),
        "Each token goes to 2 of 4 experts; all tokens need 3",
        ("expert 0", "2 tokens", "1 token", "3 tokens", "0 tokens"),
    ),
    "kept heads": (
        # 2 x 8 x 128, 2 x 2 x 128, 2 x 128 and 512 + 64 numbers
        lambda: draw_kept_heads(8, 128, groups=2, latent=512, rotary=64),
        "Fewer heads keep less, and a latent for all of them 576 instead of 2,048",
        ("2,048 numbers", "512 numbers", "256 numbers", "576 = 512 + 64 numbers"),
    ),
    "tiles": (
        # 1024 * 1024 * 4 B of scores, 64 tiles of 128 * 128 * 4 B; 128 * 64 * 2 B of queries
        lambda: draw_tiles(1024, 128, head_size=64),
        "A multiprocessor holds one tile of 64 KiB, of 4 MiB of scores in float32",
        ("queries:\na tile has\n16 KiB", "masked: skipped"),
    ),
    "accumulation": (
        lambda: draw_accumulation(4, 2 * GIB, 3 * GIB),
        "4 micro-batches share room for the activations of one: 2 GiB",
        (".grad\n3 GiB", "backward\nwrites", "backward\nadds"),
    ),
    "mixed precision": (
        lambda: draw_mixed_precision({"weights": 4, "gradients": 4, "AdamW": 8}),
        "Mixed precision: products in 16 bits, everything that lasts in float32",
        ("4 B", "2 B", "8 B", "times the\nloss scale"),
    ),
    "travel": (
        lambda: draw_travel(PLACES, [Trip("gradients", GIB, "GPU", "host")], title="Halves"),
        "Halves",
        ("GPU: 2 GiB", "gradients", "1 GiB"),
    ),
    "states": (
        lambda: draw_states(WEIGHT, STATES, title="Fewer bits, or fewer numbers"),
        "Fewer bits, or fewer numbers",
        (
            "exp_avg: 64 x 16 float32",
            "first: 1,024 uint8",
            "and 16 float32",
            "col_var: 1 x 16 float32",
        ),
    ),
    "star and ring": (
        # 3 GPUs send 4 GiB to GPU 0 and get 4 GiB; a ring's GPU sends 2 * 3 / 4 of 4 GiB
        lambda: draw_star_and_ring(4 * GIB, 4),
        "In a star GPU 0 moves 24 GiB; in a ring every GPU sends 6 GiB",
        ("6 GiB\non each link", "GPU 3"),
    ),
    "ZeRO": (
        # 32 GiB; with stage 1 16 + 16/4, with stage 2 8 + 24/4, with stage 3 32/4
        lambda: draw_zero_stages(WHOLE, 4),
        "Stage 1 saves most: 32 GiB on each of 4 GPUs, then 20 GiB; at stage 3 8 GiB",
        ("20 GiB", "14 GiB", "3 other GPUs", "3 M: 2 all-gathers,\nreduce-scatter"),
    ),
    "cut matrices": (
        # 4096 * 16384 / 4 * 2 B of A on a GPU; X and Y 16384 * 4096 * 2 B
        lambda: draw_cut_matrices(16384, 4096, 16384, 4),
        "Columns, then rows: one all-reduce of 128 MiB forward, one backward, and no whole hidden "
        "layer",
        ("A, cut by columns: 32 MiB here", "4 parts of a sum:\nall-reduce (g)"),
    ),
    "methods": (
        lambda: draw_methods(
            {"as it was": MethodCost(8 * GIB, 1.0), "less": MethodCost(2 * GIB, 1.25, GIB, "slow")}
        ),
        "Least memory: less, 75% less than at first, in 1.25 of the time",
        ("x 1.25", "slow", "1 GiB"),
    ),
    "methods and a GPU": (
        lambda: draw_methods(
            {"as it was": MethodCost(8 * GIB, 1.0), "less": MethodCost(2 * GIB, 1.25)},
            title="Only less fits",
            capacity_bytes=4 * GIB,
        ),
        "Only less fits",
        ("8 GiB", "2 GiB", "room on the GPU: 4 GiB"),
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_finding_and_the_numbers_are_in_the_picture(name: str) -> None:
    draw, finding, words = DRAWN[name]
    picture = draw()
    assert picture.alt.startswith(f"{finding}. ")
    assert picture.get_suptitle() == finding
    texts = [text.get_text() for text in picture.axes[0].texts]
    assert set(words) <= set(texts)


@pytest.mark.parametrize("name", DRAWN)
def test_words_stay_on_the_paper_and_off_each_other(name: str) -> None:
    picture = DRAWN[name][0]()
    renderer = FigureCanvasAgg(picture).get_renderer()
    paper = picture.bbox
    texts = picture.axes[0].texts
    boxes = {text.get_text(): text.get_window_extent(renderer) for text in texts}
    for words, box in boxes.items():
        assert paper.x0 <= box.x0 <= box.x1 <= paper.x1, words
        assert paper.y0 <= box.y0 <= box.y1 <= paper.y1, words
    for one, other in itertools.combinations(texts, 2):
        apart = one.get_window_extent(renderer), other.get_window_extent(renderer)
        assert not apart[0].overlaps(apart[1]), (one.get_text(), other.get_text())


def test_states_are_as_large_as_their_bytes_and_single_numbers_are_left_out() -> None:
    picture = draw_states(WEIGHT, STATES, title="")
    areas = [patch for patch in picture.axes[0].patches if isinstance(patch, Rectangle)]
    weight, first, second, bytes_each, scales, rows, columns = areas
    assert weight.get_width() * weight.get_height() == pytest.approx(1.6)
    for same in (first, second):
        assert (same.get_width(), same.get_height()) == (weight.get_width(), weight.get_height())
    # 1,024 numbers of 1 B instead of 4
    assert bytes_each.get_width() * bytes_each.get_height() == pytest.approx(1.6 / 4)
    # 16 of 1,024 numbers
    assert scales.get_width() * scales.get_height() == pytest.approx(1.6 / 64)
    # A number of each of 64 rows, of 16 in a row; and one of each of 16 columns, of 64 in a column
    assert rows.get_width() * rows.get_height() == pytest.approx(1.6 / 16)
    assert columns.get_width() * columns.get_height() == pytest.approx(1.6 / 64)


def test_activations_and_gradients_are_as_high_as_their_bytes() -> None:
    picture = draw_accumulation(2, 3 * GIB, GIB)
    areas = [patch for patch in picture.axes[0].patches if isinstance(patch, Rectangle)]
    first, grad, second, again = areas
    assert first.get_width() == grad.get_width()
    assert first.get_height() == pytest.approx(3 * grad.get_height())
    assert (second.get_height(), again.get_height()) == (first.get_height(), grad.get_height())


def test_tensors_of_mixed_precision_are_as_wide_as_their_bytes() -> None:
    picture = draw_mixed_precision({"weights": 4, "gradients": 4, "AdamW": 8})
    areas = [patch for patch in picture.axes[0].patches if isinstance(patch, Rectangle)]
    widths = [area.get_width() / areas[0].get_width() * 4 for area in areas]
    assert widths == pytest.approx([4, 2, 4, 8])  # weights, their casts, gradients, states
    assert len({area.get_height() for area in areas}) == 1


def test_stages_of_zero_are_as_wide_as_their_bytes() -> None:
    """8, 8 and 16 GiB are 1 : 1 : 2; with stage 1 a GPU keeps 16/4 GiB of states, and so on."""
    picture = draw_zero_stages(WHOLE, 4)
    areas = [patch for patch in picture.axes[0].patches if isinstance(patch, Rectangle)]
    gib = [area.get_width() / areas[0].get_width() * 8 for area in areas]
    assert gib == pytest.approx([8, 8, 16, 8, 8, 4, 8, 2, 4, 2, 2, 4])


def test_kept_heads_are_as_wide_as_their_numbers() -> None:
    """Eight heads of 2 x 128, two groups, one head, a latent of 512, a rotary key of 64."""
    picture = draw_kept_heads(8, 128, groups=2, latent=512, rotary=64)
    boxes = [patch for patch in picture.axes[0].patches if patch.get_height() == 0.4]
    numbers = [box.get_width() / boxes[0].get_width() * 256 for box in boxes]
    assert numbers == pytest.approx([256] * (8 + 2 + 1) + [512, 64])
