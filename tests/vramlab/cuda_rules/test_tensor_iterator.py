"""How a reduction's dimensions are sorted, merged and cut."""

from __future__ import annotations

from vramlab.cuda_rules.tensor_iterator import Reduction


def test_a_full_reduction_of_a_contiguous_tensor_has_one_dimension() -> None:
    whole = Reduction.of((8, 16, 4), [(0, 0, 0)], (256, 16, 4), 0)
    assert (whole.shape, whole.input_strides, whole.output_strides) == ([512], [4], [[0]])
    assert (whole.numel, whole.output_numel, whole.reduced_dims) == (512, 1, 1)


def test_reduced_dimensions_come_first_even_when_they_are_slower() -> None:
    rows = Reduction.of((8, 16), [(0, 4)], (64, 4), 0)  # sum over rows: one output per column
    assert (rows.shape, rows.input_strides, rows.output_strides) == ([8, 16], [64, 4], [[0, 4]])
    assert (rows.output_numel, rows.reduced_dims) == (16, 1)


def test_neighbours_merge_when_every_operand_steps_through_them_as_one() -> None:
    # (batch, tokens, features) over batch and tokens: those two are one dimension
    bias = Reduction.of((4, 8, 16), [(0, 0, 4)], (512, 64, 4), 0)
    assert (bias.shape, bias.input_strides) == ([32, 16], [64, 4])
    # over batch alone: tokens and features are one dimension
    position = Reduction.of((4, 8, 16), [(0, 64, 4)], (512, 64, 4), 0)
    assert (position.shape, position.input_strides) == ([4, 128], [512, 4])


def test_dimensions_of_size_one_disappear() -> None:
    assert Reduction.of((8, 1, 16), [(0, 0, 0)], (64, 64, 4), 0).shape == [128]


def test_an_expanded_dimension_keeps_its_place() -> None:
    expanded = Reduction.of((8, 16), [(0, 4)], (0, 0), 0)
    assert (expanded.shape, expanded.input_strides) == ([8, 16], [0, 0])


def test_a_scalar_has_no_dimensions() -> None:
    scalar = Reduction.of((), [()], (), 0)
    assert (scalar.shape, scalar.numel, scalar.output_numel) == ([], 1, 1)
    assert [piece.shape for piece in scalar.pieces()] == [[]]


def test_offsets_beyond_32_bits_are_cut_in_halves_the_first_half_first() -> None:
    numel = 3 * 2**28  # float32: 3 GiB
    whole = Reduction.of((numel,), [(0,)], (4,), 0)
    assert not whole.fits_32_bits()
    pieces = list(whole.pieces())
    # 1.5 GiB is below 2**31 - 1 bytes: one cut is enough
    assert [piece.shape for piece in pieces] == [[numel // 2], [numel // 2]]
    assert [piece.input_offset for piece in pieces] == [0, 4 * numel // 2]


def test_the_cut_is_along_the_dimension_that_reaches_furthest() -> None:
    columns = Reduction.of((2**21, 1023), [(0, 4)], (4096, 4), 0)  # rows of 1024: 8 GiB
    # 2**21 rows -> 2**20 -> 2**19 -> 2**18 rows: 2**18 * 4096 B = 1 GiB; 2**19 would be 2**31 B,
    # less the last number of the last row: (2**19 - 1) * 4096 + 1022 * 4 + 1 < 2**31 fits
    assert [piece.shape for piece in columns.pieces()] == [[2**19, 1023]] * 4
