"""torch.autocast on a virtual GPU: PyTorch's own lists, its dtypes, its cache of cast weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from vramlab.gpu import VirtualGPU
from vramlab.gpu.core.op_table import OPS
from vramlab.gpu.ops import autocast

FP16, BF16, FP32 = torch.float16, torch.bfloat16, torch.float32


def aten_kernels_of(key: str) -> set[str]:
    """Every ATen op that has a kernel of its own for a dispatch key, in this build of PyTorch."""
    return {
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::") and torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    }


def test_the_lists_are_pytorchs() -> None:
    known = {
        func.name().removeprefix("aten::")
        for func, _ in OPS.having("autocast")
        if autocast._is_listed(func)
    }
    kernels = aten_kernels_of("AutocastCUDA")
    # PyTorch 2.11 also has overloads for named tensors, which meta does not know; builds with CUDA
    # have cuDNN's recurrent layers, which the virtual GPU does not call.
    named = {name for name in kernels if "name" in name.partition(".")[2]}
    assert known == kernels - named - {"_cudnn_rnn"}


def matrix(dtype: torch.dtype = FP32, *size: int) -> Tensor:
    return torch.zeros(size or (8, 8), dtype=dtype, device="cuda")


# as the documentation of torch.amp lists them: op(float32 matrix, float16 matrix) -> result
DTYPES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], torch.dtype]] = {
    "matmul": (lambda a, h: a @ a, FP16),
    "matmul of two dtypes": (lambda a, h: a @ h, FP16),
    "addmm": (lambda a, h: torch.addmm(a, a, a), FP16),
    "bmm": (lambda a, h: torch.bmm(a[None], a[None]), FP16),
    "einsum": (lambda a, h: torch.einsum("ij,jk->ik", a, a), FP16),
    "linear": (lambda a, h: functional.linear(a, a), FP16),
    "conv2d": (lambda a, h: functional.conv2d(a[None, None], a[None, None, :3, :3]), FP16),
    "attention": (
        lambda a, h: functional.scaled_dot_product_attention(
            a[None, None], a[None, None], a[None, None]
        ),
        FP16,
    ),
    "prelu": (lambda a, h: functional.prelu(a, a[0]), FP16),
    "float64 stays": (lambda a, h: a.double() @ a.double(), torch.float64),
    "exp": (lambda a, h: h.exp(), FP32),
    "log": (lambda a, h: h.log(), FP32),
    "pow": (lambda a, h: h**2, FP32),
    "rsqrt": (lambda a, h: h.rsqrt(), FP32),
    "softmax": (lambda a, h: h.softmax(-1), FP32),
    "log_softmax": (lambda a, h: h.log_softmax(-1), FP32),
    "softmax with a dtype": (lambda a, h: h.softmax(-1, dtype=FP16), FP16),
    "sum": (lambda a, h: h.sum(), FP32),
    "sum of a row": (lambda a, h: h.sum(0), FP32),
    "cumsum": (lambda a, h: h.cumsum(0), FP32),
    "norm": (lambda a, h: h.norm(), FP32),
    "layer_norm": (lambda a, h: functional.layer_norm(h, (8,)), FP32),
    "cross_entropy": (
        lambda a, h: functional.cross_entropy(h, torch.zeros(8, dtype=torch.long, device="cuda")),
        FP32,
    ),
    "mse_loss": (lambda a, h: functional.mse_loss(h, a), FP32),
    "cosine_similarity": (lambda a, h: functional.cosine_similarity(h, h), FP32),
    "binary cross entropy with logits": (
        lambda a, h: functional.binary_cross_entropy_with_logits(h, h),
        FP32,
    ),
    "widest of two": (lambda a, h: torch.addcmul(h, h, a), FP32),
    "widest of equals": (lambda a, h: torch.addcmul(h, h, h), FP16),
    "dot of two dtypes": (lambda a, h: torch.dot(h[0], a[0]), FP32),
    "index_put": (
        lambda a, h: torch.index_put(a, (torch.zeros(1, dtype=torch.long, device="cuda"),), h[:1]),
        FP32,
    ),
    "relu is on no list": (lambda a, h: h.relu(), FP16),
    "relu of float32": (lambda a, h: a.relu(), FP32),
    "gelu": (lambda a, h: functional.gelu(h), FP16),
    "add promotes": (lambda a, h: a + h, FP32),
    "cat promotes": (lambda a, h: torch.cat([a, h]), FP32),
    "mean is on no list": (lambda a, h: h.mean(), FP16),
    "max": (lambda a, h: h.max(), FP16),
    "dropout": (lambda a, h: functional.dropout(h, 0.5), FP16),
    "batch norm": (
        lambda a, h: functional.batch_norm(h[:, :, None], None, None, training=True),
        FP16,
    ),
    "embedding": (
        lambda a, h: functional.embedding(torch.zeros(2, dtype=torch.long, device="cuda"), a),
        FP32,
    ),
}


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes(gpu: VirtualGPU, name: str) -> None:
    operation, dtype = DTYPES[name]
    with torch.autocast("cuda", dtype=FP16):
        assert operation(matrix(), matrix(FP16)).dtype == dtype


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_with_values(name: str) -> None:
    operation, dtype = DTYPES[name]
    with VirtualGPU("A100-40GB", values=True), torch.autocast("cuda", dtype=FP16):
        assert operation(matrix(), matrix(FP16)).dtype == dtype


def test_the_default_dtype_and_bfloat16(gpu: VirtualGPU) -> None:
    a = matrix()
    with torch.autocast("cuda"):
        assert (a @ a).dtype == FP16
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") == FP16
    with torch.autocast("cuda", dtype=BF16):
        assert (a @ a).dtype == BF16
    with torch.amp.autocast("cuda", torch.bfloat16):
        assert (a @ a).dtype == BF16
    assert (a @ a).dtype == FP32


def test_regions_nest(gpu: VirtualGPU) -> None:
    a = matrix()
    with torch.autocast("cuda", dtype=FP16):
        with torch.autocast("cuda", enabled=False):
            assert (a @ a).dtype == FP32
            with torch.autocast("cuda", dtype=BF16):
                assert (a @ a).dtype == BF16
        assert (a @ a).dtype == FP16
    with torch.autocast("cuda", enabled=False):
        assert (a @ a).dtype == FP32


def test_binary_cross_entropy_is_refused(gpu: VirtualGPU) -> None:
    p = matrix(FP16)
    with (
        torch.autocast("cuda"),
        pytest.raises(RuntimeError, match=r"torch\.nn\.BCELoss are unsafe to autocast"),
    ):
        functional.binary_cross_entropy(p, p)


W, CAST = 8 * 64 * 4, 8 * 64 * 2


def test_weights_are_cast_once_a_region(no_workspaces: VirtualGPU) -> None:
    layer = nn.Linear(8, 64, bias=False).cuda()  # 2048 B
    x = matrix(FP16, 4, 8)  # 64 B -> 512
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", dtype=FP16):
        layer(x)
        assert torch.cuda.memory_allocated() - before == CAST  # kept; the result is gone
        layer(x)
        assert torch.cuda.memory_allocated() - before == CAST
        with torch.autocast("cuda", dtype=FP16):
            layer(x)
        assert torch.cuda.memory_allocated() - before == CAST  # an inner region ends nothing
    assert torch.cuda.memory_allocated() == before
    with torch.autocast("cuda", dtype=FP16, cache_enabled=False):
        layer(x)
        assert torch.cuda.memory_allocated() == before
    with torch.autocast("cuda", dtype=FP16):
        layer(x)
        torch.clear_autocast_cache()
        assert torch.cuda.memory_allocated() == before


def test_only_weights_that_learn_are_cached(no_workspaces: VirtualGPU) -> None:
    layer = nn.Linear(8, 64, bias=False).cuda().requires_grad_(False)
    x = matrix(FP32, 4, 8)
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", dtype=FP16):
        layer(x)
        # an input in float32 that needs a gradient is cached too, and its cast holds it: 2 x 512 B
        layer(x.clone().requires_grad_())
        assert torch.cuda.memory_allocated() - before == 2 * 512
    assert torch.cuda.memory_allocated() == before


def test_a_cached_weight_lives_in_the_graph_after_its_region(no_workspaces: VirtualGPU) -> None:
    layer = nn.Linear(8, 64, bias=False).cuda()
    x = matrix(FP16, 4, 8).requires_grad_()
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", dtype=FP16):
        y = layer(x)
    # the graph keeps the cast weight for the gradient of x; y is 4 x 64 x 2 = 512 B
    assert torch.cuda.memory_allocated() - before == CAST + 512
    y.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == FP32
    assert x.grad is not None
    assert x.grad.dtype == FP16
    del y
    assert torch.cuda.memory_allocated() - before == W + 512


def test_mixed_precision_to_the_byte(no_workspaces: VirtualGPU) -> None:
    # Linear(64, 64) -> LayerNorm(64), batch 32, all counted after the forward pass
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)).cuda()
    x = matrix(FP32, 32, 64)
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", dtype=FP16):
        y = model(x)
    assert y.dtype == FP32
    # the linear's operands as float16: x 4096 B (its weight needs it; the cast weight serves only
    # the gradient of x, which is not used); its result as float32 for the norm 8192 B; the norm's
    # mean and rstd, 32 x 4 B -> 512 each; and y 8192 B
    kept = torch.cuda.memory_allocated() - before
    assert kept == 4096 + 8192 + 2 * 512 + 8192


class TestGradScaler:
    def scaler(self, **options: float) -> torch.amp.GradScaler:
        return torch.amp.GradScaler("cuda", **options)  # type: ignore[arg-type]

    def step(self, scaler: torch.amp.GradScaler, clip: bool = False) -> None:
        model = nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with torch.autocast("cuda", dtype=FP16):
            loss = model(torch.rand(8, 8, device="cuda")).sum()
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    @pytest.mark.parametrize("clip", [False, True])
    def test_the_scale_grows_after_its_interval(self, gpu: VirtualGPU, clip: bool) -> None:
        scaler = self.scaler(growth_interval=3)
        scales = []
        for _ in range(7):
            self.step(scaler, clip)
            scales.append(scaler.get_scale())
        first = 2.0**16
        assert scales == [first, first, 2 * first, 2 * first, 2 * first, 4 * first, 4 * first]

    def test_what_it_takes(self, no_workspaces: VirtualGPU) -> None:
        scaler = self.scaler()
        assert torch.cuda.memory_allocated() == 0
        self.step(scaler)
        assert torch.cuda.memory_allocated() == 2 * 512  # the scale and the growth tracker

    def test_settings(self, gpu: VirtualGPU) -> None:
        scaler = self.scaler(init_scale=8.0, growth_factor=3.0, growth_interval=1)
        self.step(scaler)
        assert scaler.get_scale() == 24.0
        state = scaler.state_dict()
        assert state["scale"] == 24.0
        other = self.scaler()
        other.load_state_dict(state)
        assert other.get_scale() == 24.0
        scaler.update(5.0)
        assert scaler.get_scale() == 5.0

    def test_a_fused_optimizer_unscales_by_itself(self, gpu: VirtualGPU) -> None:
        scaler = self.scaler(growth_interval=1)
        layer = nn.Linear(8, 8).cuda()
        optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
        scaler.scale(layer(matrix()).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2.0**17

    def test_infinities_lower_the_scale(self, values_gpu: VirtualGPU) -> None:
        scaler = self.scaler(init_scale=4.0)
        weight = nn.Parameter(torch.ones(4, device="cuda"))
        optimizer = torch.optim.SGD([weight], lr=1.0)
        scaler.scale(weight.sum() * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 2.0
        assert weight.tolist() == [1, 1, 1, 1]  # the step was left out
