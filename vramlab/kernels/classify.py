"""Knowledge of an op's memory: so that a run can say what it counted by its outputs only."""

from __future__ import annotations

import functools
from enum import Enum

import torch

from vramlab.gpu.torch_internals import OpOverload, schema_of
from vramlab.kernels.rule_table.registry import TABLE, overloads


class Knowledge(Enum):
    """How well an op's memory is known."""

    RULE = "a rule says what its kernel takes beyond its outputs"
    PLAIN = "its kernel takes its outputs and nothing else"
    WORKSPACE_UNKNOWN = "a library decides the size of its workspace: counted by its outputs only"
    UNREVIEWED = "its kernel has not been reviewed: counted by its outputs only"


# cuDNN picks an algorithm, and with it a workspace, when the op runs; the choice depends on the
# library's version, on the GPU and, with torch.backends.cudnn.benchmark, on the clock.
WORKSPACE_UNKNOWN = (
    "aten._convolution",
    "aten.convolution_overrideable",
    "aten.convolution_backward_overrideable",
    "aten._batch_norm_with_update",
    "aten.batch_norm_backward",
    "aten.cudnn_batch_norm",
    "aten.cudnn_batch_norm_backward",
    "aten.cudnn_convolution",
    "aten.cudnn_convolution_transpose",
    "aten.cudnn_convolution_relu",
    "aten.cudnn_convolution_add_relu",
    "aten._cudnn_ctc_loss",
    "aten._cudnn_attention_forward",
    "aten._cudnn_attention_backward",
    "aten._scaled_dot_product_cudnn_attention",
    "aten._scaled_dot_product_cudnn_attention_backward",
    "aten._fft_c2c",
    "aten._fft_c2r",
    "aten._fft_r2c",
    # cuSPARSE's
    "aten._sparse_addmm",
)

# Ops whose CUDA kernels (aten/src/ATen/native/cuda, PyTorch 2.13) allocate only their outputs.
# Views, element-wise ops and random fills need no line here: schemas and tags tell them.
PLAIN = (
    # collectives: the tensors are there, and NCCL's own buffers are outside of the allocator
    "c10d._allgather_base_",
    "c10d._reduce_scatter_base_",
    "c10d.allgather_into_tensor_coalesced_",
    "c10d.allreduce_",
    "c10d.allreduce_coalesced_",
    "c10d.alltoall_",
    "c10d.alltoall_base_",
    "c10d.broadcast_",
    "c10d.gather_",
    "c10d.recv_",
    "c10d.reduce_",
    "c10d.reduce_scatter_tensor_coalesced_",
    "c10d.scatter_",
    "c10d.send",
    "_c10d_functional.all_gather_into_tensor",
    "_c10d_functional.all_reduce",
    "_c10d_functional.all_to_all_single",
    "_c10d_functional.reduce_scatter_tensor",
    "_c10d_functional.wait_tensor",
    "_c10d_functional.wait_tensors",
    # recurrent networks: what cuDNN takes, `vramlab.gpu.ops.recurrent.cudnn_rnn` allocates
    "aten._cudnn_rnn",
    "aten._cudnn_rnn_backward",
    "aten._cudnn_rnn_flatten_weight",
    # sparse tensors: what they are made of
    "aten._coalesced_",
    "aten._dimI",
    "aten._dimV",
    "aten._indices",
    "aten._nnz",
    "aten._sparse_coo_tensor_with_dims",
    "aten._sparse_coo_tensor_with_dims_and_tensors",
    "aten._values",
    "aten.dense_dim",
    "aten.indices",
    "aten.is_coalesced",
    "aten.sparse_dim",
    "aten.sparse_resize_",
    "aten.sparse_resize_and_clear_",
    "aten.values",
    # factories
    "aten.empty",
    "aten.empty_like",
    "aten.empty_strided",
    "aten.empty_permuted",
    "aten.new_empty",
    "aten.new_empty_strided",
    "aten.new_zeros",
    "aten.new_ones",
    "aten.new_full",
    "aten.zeros",
    "aten.zeros_like",
    "aten.ones",
    "aten.ones_like",
    "aten.full",
    "aten.full_like",
    "aten.arange",
    "aten.linspace",
    "aten.logspace",
    "aten.eye",
    "aten.scalar_tensor",
    "aten.tril",
    "aten.triu",
    "aten.tril_",
    "aten.triu_",
    "aten.tril_indices",
    "aten.triu_indices",
    "aten.rand",
    "aten.rand_like",
    "aten.randn",
    "aten.randn_like",
    "aten.randint",
    "aten.randint_like",
    # random numbers without a state, as the native engine shows it for 2.15
    "aten._philox_key_fold_in",
    "aten._philox_randint",
    "aten._philox_randint_",
    # views in place
    "aten.as_strided_",
    "aten.squeeze_",
    "aten.t_",
    "aten.transpose_",
    "aten.unsqueeze_",
    # copies and fills
    "aten.clone",
    "aten.copy_",
    "aten.copy",
    "aten._to_copy",
    "aten.fill_",
    "aten.zero_",
    "aten.zero",
    "aten.set_",
    "aten.shallow_copy_data_",
    "aten.resize_",
    "aten.lift_fresh",
    "aten.contiguous",
    "aten._unsafe_view",
    "aten._reshape_alias",
    "aten.unsafe_split",
    "aten.unsafe_split_with_sizes",
    "aten.unsafe_chunk",
    "aten._local_scalar_dense",
    "aten.cat",
    "aten.stack",
    "aten.constant_pad_nd",
    "aten.repeat",
    "aten.flip",
    "aten.select_backward",
    "aten.slice_backward",
    "aten.diagonal_backward",
    # random, in place or not
    "aten.native_dropout_backward",
    "aten.bernoulli",
    "aten.bernoulli_",
    "aten.normal_",
    "aten.uniform_",
    "aten.random_",
    "aten.exponential_",
    # rows by index
    "aten.index_select",
    "aten.index_copy",  # unless torch.use_deterministic_algorithms: then it is index_put
    "aten.index_copy_",
    "aten.index_add",  # the same
    "aten.index_add_",
    "aten.gather",
    "aten.scatter",
    "aten.scatter_",
    "aten.scatter_add",
    "aten.scatter_add_",
    "aten.masked_fill_",
    "aten.where",
    # activations whose schemas carry no tag
    "aten.hardtanh_backward",
    "aten.leaky_relu_backward",
    "aten.elu_backward",
    "aten.softplus_backward",
    "aten.mish_backward",
    "aten.log_sigmoid_backward",
    "aten.glu",
    "aten.glu_backward",
    "aten.mse_loss_backward",
    "aten.smooth_l1_loss_backward",
    "aten.huber_loss_backward",
    "aten.binary_cross_entropy_backward",
    # optimizers
    "aten._fused_adam_",
    "aten._fused_adamw_",
    "aten._fused_sgd_",
    "aten._amp_update_scale_",
    "aten._amp_foreach_non_finite_check_and_unscale_",
)


def classify(func: OpOverload) -> Knowledge:
    """Return what is known of an overload's memory."""
    if func in _resolved()[0]:
        return Knowledge.WORKSPACE_UNKNOWN
    if TABLE.find(func) is not None:
        return Knowledge.RULE
    if func in _resolved()[1] or _is_view(func) or _is_element_wise(func):
        return Knowledge.PLAIN
    return Knowledge.UNREVIEWED


def _is_view(func: OpOverload) -> bool:
    """Return whether every result shares its argument's storage."""
    returns = schema_of(func).returns
    return (
        bool(returns)
        and all(each.alias_info is not None for each in returns)
        and not any(
            argument.alias_info is not None and argument.alias_info.is_write
            for argument in schema_of(func).arguments
        )
    )


def _is_element_wise(func: OpOverload) -> bool:
    """Return whether it is one TensorIterator kernel: CUDA casts operands inside it.

    The in-place and out= forms of an op carry no tag of their own when the op has none.
    """
    if torch.Tag.pointwise in func.tags:
        return True
    name = schema_of(func).name
    if name.startswith("aten::_foreach_"):
        return name not in ("aten::_foreach_norm", "aten::_foreach_powsum", "aten::_foreach_max")
    base = getattr(torch.ops.aten, name.removeprefix("aten::").removesuffix("_"), None)
    return base is not None and any(
        torch.Tag.pointwise in getattr(base, each).tags for each in base.overloads()
    )


@functools.cache
def _resolved() -> tuple[frozenset[OpOverload], frozenset[OpOverload]]:
    unknown, plain = (
        frozenset(each for name in names for each in overloads(name))
        for names in (WORKSPACE_UNKNOWN, PLAIN)
    )
    return unknown, plain
