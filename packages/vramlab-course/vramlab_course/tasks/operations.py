"""How many operations an operator takes: the table by which work is counted (`work.py`).

There are three kinds of operators:

- what moves nothing and computes nothing: views;
- what takes a few operations for each number, such as element-wise operators, reductions, copies
  and indexing: the elements of its largest tensor;
- what multiplies and adds up, such as products, convolutions and attention: two operations for
  each multiplication with its addition. `torch.utils.flop_counter` lacks in-place ones such as
  `addmm_`, and `addbmm`, `mv`, `cdist` and `linalg.solve`, so the table lists all of them.

An operator that is none of these, because PyTorch is newer than this table, is counted by its
sizes, as the largest product that they could be of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from vramlab_classroom.judge.guards import words
from vramlab_classroom.judge.lazy import torch

if TYPE_CHECKING:
    from torch._ops import OpOverload

Arguments = Sequence[Any]
Formula = Callable[[Arguments, Any], Any]
"""Gives the operations of a call from its positional arguments and its result."""


def operations_of(
    func: OpOverload, args: Arguments, kwargs: Mapping[str, Any], result: Any, flops: int
) -> int:
    """Count all operations of an operator, of which `flops` multiply and add up."""
    if flops:
        return flops
    each = 2 if base_name(func) in _TWO_EACH else 1
    values = (*args, *kwargs.values(), result)
    return each * _of_numbers(values) * max(map(elements, values), default=0)


def flops_of(func: OpOverload, args: Arguments, kwargs: Mapping[str, Any], result: Any) -> int:
    """Count the operations of an operator that multiplies and adds up; 0 for any other."""
    formula = _formula(func)
    if formula is None:
        return 0
    values = (*args, *kwargs.values())
    return int(formula(values, result)) * _of_numbers((*values, result))


def _of_numbers(values: Sequence[Any]) -> int:
    """Return what an operation of such numbers counts: a complex product is four real ones."""
    return 4 if any(each.is_complex() for each in _tensors(values)) else 1


def elements(value: Any) -> int:
    """Count those of a tensor, or of all tensors in a list."""
    if isinstance(value, torch.Tensor):
        return int(value.numel())
    if isinstance(value, list | tuple):
        return sum(map(elements, value))
    return 0


@cache
def base_name(func: OpOverload) -> str:
    """Return the name that an operator shares with its in-place form: `addmm` of `aten::addmm_`."""
    name = func._schema.name.partition("::")[2]
    return name.removesuffix("_") if not name.startswith("__") else name


@cache
def _formula(func: OpOverload) -> Formula | None:
    if func.namespace == "aten" and (formula := PRODUCTS.get(base_name(func))):
        return formula
    return None if is_linear(func) else _by_sizes


def is_linear(func: OpOverload) -> bool:
    """Return whether an operator takes only a few operations for each number."""
    reduction = getattr(torch.Tag, "reduction", torch.Tag.pointwise)  # new in PyTorch 2.12
    return (
        func.is_view
        or not {torch.Tag.pointwise, torch.Tag.view_copy, reduction}.isdisjoint(func.tags)
        or func.namespace in _OF_OTHERS
        or (func.namespace == "aten" and base_name(func) in LINEAR)
    )


_TWO_EACH = frozenset(
    {"addcdiv", "addcmul", "lerp", "_foreach_addcdiv", "_foreach_addcmul", "_foreach_lerp"}
)
"""Element-wise operators that multiply and add."""

_OF_OTHERS = frozenset(
    {"c10d", "c10d_functional", "_c10d_functional", "fsdp", "symm_mem", "profiler", "prim"}
)
"""Namespaces of collectives, of what prepares them, and of what only looks on."""


# Formulas


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for each in values:
            yield from _tensors(each)


def _first(result: Any) -> torch.Tensor:
    return next(_tensors(result))


def _product(left: torch.Tensor, right: torch.Tensor) -> int:
    """(..., M, K) times (..., K, N), or times (K): 2 operations for each M, K and N."""
    return 2 * left.numel() * (right.shape[-1] if right.dim() > 1 else 1)


def _of_operands(index: int) -> Formula:
    """Return the formula for a product of two neighbours among the arguments."""
    return lambda args, result: _product(args[index], args[index + 1])


def _of_lists(args: Arguments, result: Any) -> Any:
    return sum(_product(left, right) for left, right in zip(args[0], args[1], strict=True))


def _of_layer(args: Arguments, result: Any) -> Any:
    """(..., K) times weights that are packed somehow, to (..., N)."""
    return 2 * args[0].numel() * _first(result).shape[-1]


def _outer(args: Arguments, result: Any) -> Any:
    return 2 * _first(result).numel()


def _convolution(args: Arguments, result: Any) -> Any:
    """Each weight meets each position of the smaller side: the output, or the input if transposed.

    Source: `conv_flop_count` of torch/utils/flop_counter.py, PyTorch 2.13.
    """
    x, weight = args[0], args[1]
    is_transposed = len(args) > 6 and args[6] is True
    place = x if is_transposed else _first(result)
    return 2 * weight.numel() * (place.numel() // max(place.shape[1], 1))


def _transposed_convolution(args: Arguments, result: Any) -> Any:
    x, weight = args[0], args[1]
    return 2 * weight.numel() * (x.numel() // max(x.shape[1], 1))


def _backward_of_convolution(args: Arguments, result: Any) -> Any:
    """One product for the input's gradient, one for the weight's."""
    gradient, x, weight = list(_tensors(args))[:3]
    is_transposed = len(args) > 7 and args[7] is True
    place = x if is_transposed else gradient
    made = sum(each is not None for each in result[:2])
    return made * 2 * weight.numel() * (place.numel() // max(place.shape[1], 1))


def _convolution_in_time(args: Arguments, result: Any) -> Any:
    """conv_tbc: its weight is (K, inputs, outputs), its result (T, B, outputs)."""
    weight = args[1]
    return 2 * _first(result).numel() * weight.shape[0] * weight.shape[1]


def _scores(query: torch.Tensor, key: torch.Tensor) -> int:
    """Of (B, H, S, E) and (B, H', S', E): B * H * S * S'."""
    return query.numel() // max(query.shape[-1], 1) * key.shape[-2]


def _attention(args: Arguments, result: Any) -> Any:
    query, key, value = args[:3]
    return 2 * _scores(query, key) * (query.shape[-1] + value.shape[-1])


def _backward_of_attention(args: Arguments, result: Any) -> Any:
    """Count the scores again, and the gradients of scores, query, key and value.

    Source: `sdpa_backward_flop_count` of torch/utils/flop_counter.py, PyTorch 2.13.
    """
    query, key, value = args[1:4]
    return 2 * _scores(query, key) * (3 * query.shape[-1] + 2 * value.shape[-1])


def _known_to_torch(name: str) -> Formula:
    """As torch.utils.flop_counter has it."""

    def formula(args: Arguments, result: Any) -> Any:
        from torch.utils.flop_counter import flop_registry

        return int(flop_registry[getattr(torch.ops.aten, name)](*args, out_val=result))

    return formula


def _encoder_layer(args: Arguments, result: Any) -> Any:
    """Products with all matrices, and attention."""
    x = args[0]
    matrices = sum(each.numel() for each in _tensors(args[1:]) if each.dim() == 2)
    tokens = x.numel() // x.shape[-1]
    return 2 * tokens * matrices + 4 * x.numel() * x.shape[-2]


def _recurrent(times: int) -> Formula:
    """Each token's product with all matrices of the weights."""

    def formula(args: Arguments, result: Any) -> Any:
        x = args[0]
        matrices = sum(each.numel() for each in _tensors(args[1:]) if each.dim() <= 2)
        return times * 2 * (x.numel() // x.shape[-1]) * matrices

    return formula


def _distances(index: int) -> Formula:
    """Of each row to each row of another matrix: a difference, a power, a sum."""
    return lambda args, result: 3 * args[index].numel() * args[index + 1].shape[-2]


def _own_distances(index: int) -> Formula:
    return lambda args, result: 3 * args[index].numel() * args[index].shape[-2]


def _trilinear(args: Arguments, result: Any) -> Any:
    shapes = []
    for tensor, added in zip(args[:3], args[3:6], strict=True):
        shape = list(tensor.shape)
        for dimension in sorted(added):
            shape.insert(dimension, 1)
        shapes.append(shape)
    return 2 * math.prod(torch.broadcast_shapes(*shapes))


def _bags(args: Arguments, result: Any) -> Any:
    """Rows of a table, weighted and added up."""
    indices = max((elements(each) for each in args if _is_integer(each)), default=0)
    rows = next(each for each in args if isinstance(each, torch.Tensor) and each.dim() == 2)
    return 2 * indices * rows.shape[-1]


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point()


def _of_matrices(args: Arguments, result: Any) -> Any:
    """Return what solves, inverts or takes apart: each number meets each row."""
    tensors = [each for each in _tensors(args) if each.dim()]
    rows = max((max(each.shape[-2:]) for each in tensors), default=0)
    return 2 * rows * sum(each.numel() for each in tensors)


def _fourier(args: Arguments, result: Any) -> Any:
    numbers = max(args[0].numel(), _first(result).numel())
    length = math.prod(args[0].shape[dimension] for dimension in args[1])
    return int(5 * numbers * max(math.log2(max(length, 1)), 1))


def _combination(args: Arguments, result: Any) -> Any:
    return 2 * args[1].numel() * (args[0].numel() // max(args[0].shape[0], 1))


def _by_sizes(args: Arguments, result: Any) -> Any:
    """Return the product of (M, K) and (K, N) to (M, N) takes 2 * sqrt(MK * KN * MN) operations."""
    sizes = sorted((elements(each) for each in _tensors((args, result))), reverse=True)
    sizes += 3 * sizes[:1]
    return 2 * math.isqrt(math.prod(sizes[:3])) if sizes else 0


PRODUCTS: Mapping[str, Formula] = {
    **dict.fromkeys(
        words(
            "_grouped_mm _int_mm _scaled_grouped_mm _scaled_grouped_mm_v2 _scaled_mm _scaled_mm_v2 "
            "_sparse_mm_reduce_impl _sparse_sparse_matmul bmm dot hspmm mm mv vdot"
        ),
        _of_operands(0),
    ),
    **dict.fromkeys(
        words(
            "_addmm_activation _scaled_addmm _sparse_addmm addbmm addmm addmv baddbmm "
            "sparse_sampled_addmm sspaddmm"
        ),
        _of_operands(1),
    ),
    **dict.fromkeys(
        words(
            "_dyn_quant_matmul_4bit _mixed_dtypes_linear _sparse_semi_structured_linear "
            "_weight_int4pack_mm _weight_int4pack_mm_for_cpu "
            "_weight_int4pack_mm_with_scales_and_zeros _weight_int8pack_mm linear mkldnn_linear "
            "mkldnn_linear_backward_input"
        ),
        _of_layer,
    ),
    **dict.fromkeys(
        words(
            "_cslt_sparse_mm _cslt_sparse_mm_search _sparse_mm_reduce_impl_backward "
            "_sparse_semi_structured_addmm _sparse_semi_structured_mm _spsolve linear_backward "
            "matmul matmul_backward mkldnn_linear_backward mkldnn_linear_backward_weights"
        ),
        _by_sizes,
    ),
    "addr": _outer,
    "_foreach_mm": _of_lists,
    **dict.fromkeys(
        words(
            "_conv_depthwise2d _convolution _mps_convolution _nnpack_spatial_convolution "
            "_slow_conv2d_forward conv_depthwise3d convolution convolution_overrideable "
            "cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu "
            "miopen_convolution miopen_convolution_add_relu miopen_convolution_relu "
            "miopen_depthwise_convolution mkldnn_convolution slow_conv3d_forward "
            "slow_conv_dilated2d slow_conv_dilated3d"
        ),
        _convolution,
    ),
    **dict.fromkeys(
        words(
            "_mps_convolution_transpose cudnn_convolution_transpose miopen_convolution_transpose "
            "slow_conv_transpose2d slow_conv_transpose3d"
        ),
        _transposed_convolution,
    ),
    **dict.fromkeys(
        words(
            "_slow_conv2d_backward convolution_backward convolution_backward_overrideable "
            "mps_convolution_backward mps_convolution_transpose_backward"
        ),
        _backward_of_convolution,
    ),
    "conv_tbc": _convolution_in_time,
    **dict.fromkeys(
        words(
            "_scaled_dot_product_attention_math_for_mps _scaled_dot_product_cudnn_attention "
            "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention "
            "_scaled_dot_product_flash_attention_for_cpu "
            "_scaled_dot_product_fused_attention_overrideable _triton_scaled_dot_attention"
        ),
        _attention,
    ),
    **dict.fromkeys(
        words(
            "_scaled_dot_product_cudnn_attention_backward "
            "_scaled_dot_product_efficient_attention_backward "
            "_scaled_dot_product_flash_attention_backward "
            "_scaled_dot_product_flash_attention_for_cpu_backward "
            "_scaled_dot_product_fused_attention_overrideable_backward"
        ),
        _backward_of_attention,
    ),
    **{
        name: _known_to_torch(name)
        for name in words(
            "_efficient_attention_backward _efficient_attention_forward "
            "_flash_attention_backward _flash_attention_forward"
        )
    },
    **dict.fromkeys(
        words(
            "_cudnn_attention_backward _cudnn_attention_forward "
            "_cudnn_attention_forward_no_dropout_inplace "
            "_flash_attention_forward_no_dropout_inplace"
        ),
        _by_sizes,
    ),
    **dict.fromkeys(
        words(
            "_native_multi_head_attention _transformer_encoder_layer_fwd "
            "_triton_multi_head_attention"
        ),
        _encoder_layer,
    ),
    **dict.fromkeys(
        words("_cudnn_rnn _lstm_mps miopen_rnn mkldnn_rnn_layer quantized_gru quantized_lstm"),
        _recurrent(1),
    ),
    **dict.fromkeys(
        words(
            "_cudnn_rnn_backward lstm_mps_backward miopen_rnn_backward mkldnn_rnn_layer_backward"
        ),
        _recurrent(2),
    ),
    "_cdist_forward": _distances(0),
    "_euclidean_dist": _distances(0),
    "_cdist_backward": _distances(1),
    "_pdist_forward": _own_distances(0),
    "_pdist_backward": _own_distances(1),
    "_trilinear": _trilinear,
    **dict.fromkeys(
        words(
            "_embedding_bag _embedding_bag_backward _embedding_bag_dense_backward "
            "_embedding_bag_forward_only _embedding_bag_per_sample_weights_backward"
        ),
        _bags,
    ),
    **dict.fromkeys(
        words(
            "_cholesky_solve_helper _linalg_det _linalg_eigh _linalg_eigvals _linalg_slogdet "
            "_linalg_solve_ex _linalg_svd cholesky cholesky_inverse cholesky_solve geqrf "
            "linalg_cholesky_ex linalg_eig linalg_eigvals linalg_householder_product linalg_inv_ex "
            "linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor_ex "
            "linalg_lu_solve linalg_matrix_exp linalg_matrix_sqrth linalg_pinv linalg_polar "
            "linalg_qr linalg_solve_triangular ormqr triangular_solve"
        ),
        _of_matrices,
    ),
    "_fft_c2c": _fourier,
    "_fft_c2r": _fourier,
    "_fft_r2c": _fourier,
    "_compute_linear_combination": _combination,
}
"""Operators that multiply and add up, by their base names."""

LINEAR = words(
    "__irshift__ __lshift__ __rshift__ _adaptive_avg_pool2d _adaptive_avg_pool2d_backward "
    "_adaptive_avg_pool3d _adaptive_avg_pool3d_backward _add_relu _aminmax "
    "_amp_foreach_non_finite_check_and_unscale _amp_update_scale _assert_async _assert_scalar "
    "_assert_tensor_metadata _batch_norm_no_update _batch_norm_with_update "
    "_batch_norm_with_update_functional _chunk_cat _coalesce _coalesced _conj_physical "
    "_convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo "
    "_convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _copy_from "
    "_copy_from_and_resize _cslt_compress _ctc_loss _ctc_loss_backward _cudnn_ctc_loss "
    "_cudnn_init_dropout_state _cudnn_rnn_flatten_weight _cummax_helper _cummin_helper _dimI "
    "_dimV _dirichlet_grad _dyn_quant_pack_4bit_weight _efficientzerotensor "
    "_empty_affine_quantized _empty_per_channel_affine_quantized "
    "_fake_quantize_learnable_per_channel_affine "
    "_fake_quantize_learnable_per_channel_affine_backward "
    "_fake_quantize_learnable_per_tensor_affine "
    "_fake_quantize_learnable_per_tensor_affine_backward "
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fill_mem_eff_dropout_mask "
    "_foreach_abs _foreach_acos _foreach_add _foreach_addcdiv _foreach_addcmul _foreach_asin "
    "_foreach_atan _foreach_ceil _foreach_clamp_max _foreach_clamp_min _foreach_clone "
    "_foreach_copy _foreach_cos _foreach_cosh _foreach_div _foreach_erf _foreach_erfc "
    "_foreach_exp _foreach_expm1 _foreach_floor _foreach_frac _foreach_lerp _foreach_lgamma "
    "_foreach_log _foreach_log10 _foreach_log1p _foreach_log2 _foreach_max _foreach_maximum "
    "_foreach_minimum _foreach_mul _foreach_neg _foreach_norm _foreach_pow _foreach_powsum "
    "_foreach_reciprocal _foreach_round _foreach_rsqrt _foreach_sigmoid _foreach_sign "
    "_foreach_sin _foreach_sinh _foreach_sqrt _foreach_sub _foreach_tan _foreach_tanh "
    "_foreach_trunc _foreach_zero _functional_assert_async _functional_assert_scalar "
    "_functional_sym_constrain_range _functional_sym_constrain_range_for_size _fused_adagrad "
    "_fused_adam _fused_adamw _fused_dropout _fused_moving_avg_obs_fq_helper "
    "_fused_moving_avg_obs_fq_helper_functional _fused_rms_norm_backward _fused_sdp_choice "
    "_fused_sgd _grid_sampler_2d_cpu_fallback _grid_sampler_2d_cpu_fallback_backward "
    "_has_same_storage_numel _histogramdd_bin_edges _histogramdd_from_bin_cts "
    "_histogramdd_from_bin_tensors _index_put_impl _is_all_true _is_any_true "
    "_jagged_to_padded_dense_forward _lazy_clone _linalg_check_errors _local_scalar_dense "
    "_log_softmax _log_softmax_backward_data _logcumsumexp _make_dep_token "
    "_make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor _masked_scale "
    "_masked_softmax _masked_softmax_backward _mkldnn_reshape _mkldnn_transpose "
    "_native_batch_norm_legit _native_batch_norm_legit_functional "
    "_native_batch_norm_legit_no_training _nested_compute_contiguous_strides_offsets "
    "_nested_from_padded _nested_from_padded_and_nested_example _nested_from_padded_tensor "
    "_nested_get_jagged_dummy _nested_get_lengths _nested_get_max_seqlen "
    "_nested_get_min_seqlen _nested_get_offsets _nested_get_ragged_idx "
    "_nested_select_backward _nested_sum_backward _nested_tensor_from_mask "
    "_nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list "
    "_nested_tensor_size _nested_tensor_softmax_with_shape _nested_tensor_storage_offsets "
    "_nested_tensor_strides _new_zeros_with_same_feature_meta _nnz _pack_padded_sequence "
    "_padded_dense_to_jagged_forward _philox_key_fold_in _philox_key_split _philox_normal "
    "_philox_randint _philox_uniform _pin_memory _prelu_kernel _prelu_kernel_backward _print "
    "_reshape_copy _resize_output _safe_softmax _sample_dirichlet _segment_reduce_backward "
    "_softmax _softmax_backward_data _sparse_compressed_tensor_with_dims "
    "_sparse_coo_tensor_with_dims "
    "_sparse_coo_tensor_with_dims_and_tensors _sparse_csr_prod _sparse_csr_sum "
    "_sparse_log_softmax _sparse_log_softmax_backward_data _sparse_mask_projection "
    "_sparse_semi_structured_apply _sparse_semi_structured_apply_dense "
    "_sparse_semi_structured_tile _sparse_softmax _sparse_softmax_backward_data _sparse_sum "
    "_sparse_sum_backward _spdiags _stack _standard_gamma _standard_gamma_grad "
    "_thnn_fused_gru_cell _thnn_fused_gru_cell_backward _thnn_fused_lstm_cell "
    "_thnn_fused_lstm_cell_backward_impl _to_copy _to_dense _to_sparse _to_sparse_bsc "
    "_to_sparse_bsr _to_sparse_csc _to_sparse_csr _to_sparse_semi_structured "
    "_transform_bias_rescale_qkv _unique _unique2 _unsafe_index _unsafe_index_put "
    "_unsafe_masked_index _unsafe_masked_index_put_accumulate _unsafe_view "
    "_upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa "
    "_upsample_bilinear2d_aa_backward _upsample_lanczos2d_aa _upsample_lanczos2d_aa_backward "
    "_upsample_nearest_exact1d _upsample_nearest_exact1d_backward _upsample_nearest_exact2d "
    "_upsample_nearest_exact2d_backward _upsample_nearest_exact3d "
    "_upsample_nearest_exact3d_backward _use_cudnn_ctc_loss _use_miopen_ctc_loss "
    "_validate_compressed_sparse_indices _weight_norm_interface "
    "_weight_norm_interface_backward abs adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_avg_pool3d_backward adaptive_max_pool2d "
    "adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward add "
    "affine_grid_generator all allclose amax amin aminmax any arange argmax argmin as_strided "
    "as_strided_scatter avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d "
    "avg_pool3d_backward bartlett_window batch_norm_backward batch_norm_backward_elemt "
    "batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats "
    "batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats bernoulli "
    "binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits "
    "bincount binomial bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift "
    "bitwise_xor blackman_window block_diag bucketize cat cauchy celu channel_shuffle clone "
    "col2im complex constant_pad_nd copy copy_sparse_to_sparse copysign count_nonzero "
    "cudnn_affine_grid_generator cudnn_affine_grid_generator_backward cudnn_batch_norm "
    "cudnn_batch_norm_backward cudnn_grid_sampler cudnn_grid_sampler_backward cummax cummin "
    "cumprod cumsum dense_dim dequantize detach diag_embed diagonal_backward diagonal_scatter "
    "dist div elu elu_backward embedding embedding_dense_backward embedding_renorm empty "
    "empty_like empty_permuted empty_quantized empty_strided eq exponential eye "
    "fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask "
    "fft_fftfreq fft_rfftfreq fill flip floor_divide fractional_max_pool2d "
    "fractional_max_pool2d_backward fractional_max_pool3d fractional_max_pool3d_backward "
    "from_file full full_like gather gcd ge gelu gelu_backward geometric glu glu_backward "
    "glu_backward_jvp glu_jvp grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d "
    "grid_sampler_3d_backward gt hamming_window hann_window hardshrink hardshrink_backward "
    "hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward "
    "hash_tensor heaviside histc histogram huber_loss huber_loss_backward im2col index "
    "index_add index_copy index_fill index_put index_reduce index_select int_repr "
    "is_coalesced is_pinned is_same_size is_set_to isin isinf isnan kaiser_window kthvalue "
    "lcm le leaky_relu leaky_relu_backward lift linalg__powsum linalg_cross "
    "linalg_vector_norm linspace log_normal log_sigmoid_backward log_sigmoid_forward "
    "log_softmax logcumsumexp logspace logsumexp lt lu_unpack masked_fill masked_scatter "
    "masked_scatter_backward masked_select max max_pool2d_backward max_pool2d_with_indices "
    "max_pool2d_with_indices_backward max_pool3d_with_indices "
    "max_pool3d_with_indices_backward max_unpool2d max_unpool3d mean median min "
    "miopen_batch_norm miopen_batch_norm_backward miopen_ctc_loss mish mish_backward "
    "mkldnn_adaptive_avg_pool2d mkldnn_adaptive_avg_pool2d_backward mkldnn_max_pool2d "
    "mkldnn_max_pool2d_backward mkldnn_max_pool3d mkldnn_max_pool3d_backward "
    "mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight mode mse_loss "
    "mse_loss_backward mul multi_margin_loss multi_margin_loss_backward "
    "multilabel_margin_loss_backward multilabel_margin_loss_forward multinomial nanmedian "
    "nansum narrow_copy native_batch_norm native_batch_norm_backward native_channel_shuffle "
    "native_dropout native_dropout_backward native_group_norm native_group_norm_backward "
    "native_layer_norm native_layer_norm_backward native_norm ne new_empty new_empty_strided "
    "new_full new_ones new_zeros nll_loss2d_backward nll_loss2d_forward nll_loss_backward "
    "nll_loss_forward nonzero nonzero_static norm normal normal_functional ones ones_like "
    "pixel_shuffle pixel_unshuffle poisson polar prod put q_per_channel_axis "
    "q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme "
    "quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic "
    "quantized_batch_norm quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d rand "
    "rand_like randint randint_like randn randn_like random randperm range record_stream "
    "reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward "
    "reflection_pad3d reflection_pad3d_backward relu remainder renorm repeat "
    "repeat_interleave replication_pad1d replication_pad1d_backward replication_pad2d "
    "replication_pad2d_backward replication_pad3d replication_pad3d_backward resize resize_as "
    "resize_as_sparse roll rot90 rrelu_with_noise rrelu_with_noise_backward "
    "rrelu_with_noise_functional rsub scalar_tensor scatter scatter_add scatter_reduce "
    "searchsorted segment_reduce select_backward select_scatter set shallow_copy_data "
    "slice_backward "
    "smooth_l1_loss smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward "
    "softmax softplus softplus_backward softshrink softshrink_backward sort "
    "sparse_compressed_tensor sparse_coo_tensor sparse_dim sparse_mask sparse_resize "
    "sparse_resize_and_clear split_copy split_with_sizes_copy squeeze stack std std_mean sub "
    "sum sym_constrain_range sym_constrain_range_for_size t take threshold threshold_backward "
    "to_mkldnn to_padded_tensor topk trace transpose tril tril_indices triu triu_indices "
    "unbind_copy unfold_backward uniform unique_consecutive unique_dim unique_dim_consecutive "
    "unsafe_split unsafe_split_with_sizes unsqueeze upsample_bicubic2d "
    "upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d_backward "
    "upsample_linear1d upsample_linear1d_backward upsample_nearest1d "
    "upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward "
    "upsample_nearest3d upsample_nearest3d_backward upsample_trilinear3d "
    "upsample_trilinear3d_backward var var_mean where xlogy zero zeros zeros_like"
)
"""Operators of a few operations for each number, by their base names: those which PyTorch does not
tag as such."""
