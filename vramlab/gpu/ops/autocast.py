"""torch.autocast("cuda") for tensors of a virtual GPU.

Autocast is a dispatch key of its own, and its C++ kernels cast only tensors that say they are on
CUDA. So each op on autocast's lists gets a kernel here that casts ours, and the key is switched on
in every attached thread; torch's own `autocast` does the rest, as it switches the key off outside.

The lists are PyTorch's; where an older one lacks an op, so does this. Source:
AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE,
AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE and AT_FORALL_PROMOTE in aten/src/ATen/autocast_mode.h,
`cached_cast` in autocast_mode.cpp, PyTorch 2.13. linalg_matrix_sqrth came with 2.14: what it does
with float16 was seen on the native engine.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from vramlab.gpu.core.op_table import OPS, AutocastPolicy, op
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.session import Session
from vramlab.gpu.core.storage_record import record_of
from vramlab.gpu.core.tensors import tensors_in
from vramlab.gpu.torch_internals import (
    DisableTorchFunction,
    DispatchKey,
    DispatchKeySet,
    ExcludeDispatchKeyGuard,
    OpOverload,
    dispatch_has_kernel_for_dispatch_key,
    schema_of,
)


def _list(policy: AutocastPolicy, names: str) -> None:
    """Note what autocast does with ops, which are named as in autocast_mode.h."""
    full = (name if "." in name else f"{name}.default" for name in names.split())
    op(*(f"aten.{name}" for name in full), autocast=policy)


_list(
    AutocastPolicy.LOWER_PRECISION,
    """
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input convolution cudnn_convolution
    cudnn_convolution_transpose prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear
    addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell
    lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention
    scaled_dot_product_attention
    """,
)

_list(
    AutocastPolicy.FLOAT32,
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan
    pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm
    group_norm rms_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity
    poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss
    smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
    logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d
    _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d
    upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d
    _upsample_bicubic2d_aa linalg_matrix_sqrth
    """,
)

_list(
    AutocastPolicy.FLOAT32_OUTPUT,
    """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
    linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList
    """,
)

_list(AutocastPolicy.NORM, "norm.Scalar norm.ScalarOpt_dim")

_list(
    AutocastPolicy.PROMOTE,
    """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
    """,
)

_list(AutocastPolicy.BANNED, "binary_cross_entropy")

_KEY = DispatchKey.AutocastCUDA
_KEY_SET = DispatchKeySet(_KEY)

Kernel = Callable[..., Any]


def install(session: Session) -> None:
    """Register autocast's kernels for CUDA, and a cache of cast weights."""
    Autocast().install(session.library, session.patches)


class Autocast:
    """Autocast's kernels for one attached machine, and its cache of cast weights.

    The cache keeps the casts of float32 leaves that need gradients, until the outermost autocast
    region ends.
    """

    def __init__(self) -> None:
        self._cast_weights: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def install(self, library: torch.library.Library, patches: Patches) -> None:
        """Register the kernels in `library`, and let torch's own code clear the cache."""
        kernels = {
            AutocastPolicy.LOWER_PRECISION: self._lower_precision,
            AutocastPolicy.FLOAT32: self._float32,
            AutocastPolicy.FLOAT32_OUTPUT: self._float32_output,
            AutocastPolicy.NORM: self._norm,
            AutocastPolicy.PROMOTE: self._promote,
            AutocastPolicy.BANNED: self._banned,
        }
        with warnings.catch_warnings():
            # Overriding PyTorch's kernels is what this is for; undone when the library goes.
            warnings.simplefilter("ignore", UserWarning)
            for func, spec in OPS.having("autocast"):
                if spec.autocast is not None and _is_listed(func):
                    name = func.name().removeprefix("aten::")
                    library.impl(name, kernels[spec.autocast](func), "AutocastCUDA")
        clear = torch.clear_autocast_cache

        def clear_autocast_cache() -> None:
            self._cast_weights.clear()
            clear()

        patches.set(torch, "clear_autocast_cache", clear_autocast_cache)

    def _cast(self, arg: Any, dtype: torch.dtype) -> Any:
        if isinstance(arg, torch.Tensor):
            return self._cast_tensor(arg, dtype)
        if isinstance(arg, list | tuple):
            return type(arg)(self._cast(item, dtype) for item in arg)
        return arg

    def _cast_tensor(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if not _is_eligible(tensor) or tensor.dtype == dtype:
            return tensor
        is_weight = (
            torch.is_autocast_cache_enabled()
            and dtype == torch.get_autocast_dtype("cuda")
            and tensor.dtype == torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()
        )
        if not is_weight:
            return tensor.to(dtype)
        entry = self._cast_weights.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            entry = (weakref.ref(tensor), tensor.to(dtype))
            self._cast_weights[id(tensor)] = entry
        return entry[1]

    def _casting(self, func: OpOverload, dtype: Callable[[tuple[Any, ...]], torch.dtype]) -> Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with ExcludeDispatchKeyGuard(_KEY_SET):
                to = dtype((*args, *kwargs.values()))
                # The last first: in C++ the casts are arguments of one call, and GCC, which
                # PyTorch is built with, evaluates arguments from the right.
                kwargs = {name: self._cast(kwargs[name], to) for name in reversed(kwargs)}
                last_first = [self._cast(arg, to) for arg in reversed(args)]
                return func(*reversed(last_first), **kwargs)

        return kernel

    def _lower_precision(self, func: OpOverload) -> Kernel:
        return self._casting(func, lambda args: torch.get_autocast_dtype("cuda"))

    def _float32(self, func: OpOverload) -> Kernel:
        return self._casting(func, lambda args: torch.float32)

    def _promote(self, func: OpOverload) -> Kernel:
        def widest(args: tuple[Any, ...]) -> torch.dtype:
            dtypes = {t.dtype for t in tensors_in(args) if _is_eligible(t)}
            return torch.float32 if torch.float32 in dtypes else torch.get_autocast_dtype("cuda")

        return self._casting(func, widest)

    def _float32_output(self, func: OpOverload) -> Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with ExcludeDispatchKeyGuard(_KEY_SET):
                if _is_eligible(args[0]) and kwargs.get("dtype") is None:
                    arguments = [argument.name for argument in schema_of(func).arguments]
                    at = arguments.index("dtype")
                    if len(args) > at:
                        args = (*args[:at], args[at] or torch.float32, *args[at + 1 :])
                    else:
                        kwargs = {**kwargs, "dtype": torch.float32}
                return func(*args, **kwargs)

        return kernel

    def _norm(self, func: OpOverload) -> Kernel:
        def kernel(tensor: torch.Tensor, p: Any = 2, *args: Any) -> Any:
            with ExcludeDispatchKeyGuard(_KEY_SET):
                if not _is_eligible(tensor):
                    return func(tensor, p, *args)
                return torch.ops.aten.norm(tensor, p, *args, dtype=torch.float32)

        return kernel

    def _banned(self, func: OpOverload) -> Kernel:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            with ExcludeDispatchKeyGuard(_KEY_SET):
                if any(_is_eligible(t) for t in tensors_in(args)):
                    raise RuntimeError(
                        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe "
                        "to autocast.\nMany models use a sigmoid layer right before the binary "
                        "cross entropy layer.\nIn this case, combine the two layers using "
                        "torch.nn.functional.binary_cross_entropy_with_logits or "
                        "torch.nn.BCEWithLogitsLoss."
                    )
                return func(*args, **kwargs)

        return kernel


def _is_eligible(arg: Any) -> bool:
    if not isinstance(arg, torch.Tensor) or not arg.is_floating_point():
        return False
    with DisableTorchFunction():
        record = record_of(arg)
    return record is not None and record.device_index >= 0 and arg.dtype != torch.float64


def _is_listed(func: OpOverload) -> bool:
    """Return whether the installed PyTorch has the op on autocast's lists."""
    return bool(dispatch_has_kernel_for_dispatch_key(func.name(), "AutocastCUDA"))
