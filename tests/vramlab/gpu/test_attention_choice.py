"""Which attention kernel runs: by GPU, dtype, shapes, mask, and by what a program forces."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from vramlab.gpu import VirtualGPU

FLASH, EFFICIENT, CUDNN, MATH = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.MATH,
)
FP16, BF16, FP32, FP64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
aten = torch.ops.aten
KERNELS = {
    aten._scaled_dot_product_flash_attention.default: FLASH,
    aten._scaled_dot_product_efficient_attention.default: EFFICIENT,
    aten._scaled_dot_product_cudnn_attention.default: CUDNN,
}


def attend(
    gpu: VirtualGPU,
    dtype: torch.dtype = FP16,
    *,
    heads: int = 4,
    key_heads: int | None = None,
    length: int = 32,
    key_length: int | None = None,
    head_size: int = 64,
    mask: bool = False,
    grad: bool = False,
    **options: Any,
) -> tuple[SDPBackend, Tensor]:
    """Run attention, and tell the kernel and the result."""
    key_length = key_length or length
    sizes = [(heads, length), (key_heads or heads, key_length), (key_heads or heads, key_length)]
    q, k, v = (
        torch.zeros(2, h, s, head_size, dtype=dtype, device="cuda", requires_grad=grad)
        for h, s in sizes
    )
    if mask:
        options["attn_mask"] = torch.zeros(length, key_length, dtype=dtype, device="cuda")
    gpu.dispatcher.seen.clear()
    out = functional.scaled_dot_product_attention(q, k, v, **options)
    ran = [KERNELS[func] for func in gpu.dispatcher.seen if func in KERNELS]
    assert len(ran) <= 1
    return (ran[0] if ran else MATH), out


CHOICES: list[tuple[str, dict[str, Any], SDPBackend]] = [
    # before Ampere there is no flash attention, and no bfloat16 for the memory-efficient one
    ("T4", {"dtype": FP16}, EFFICIENT),
    ("T4", {"dtype": FP32}, EFFICIENT),
    ("T4", {"dtype": BF16}, MATH),
    ("T4", {"dtype": FP16, "head_size": 60}, MATH),  # tensor cores: multiples of 8
    ("T4", {"dtype": FP32, "head_size": 61}, EFFICIENT),  # none for float32: any size
    ("V100-16GB", {"dtype": FP16}, EFFICIENT),
    ("V100-16GB", {"dtype": FP16, "is_causal": True}, EFFICIENT),
    # Ampere and Ada
    ("A100-40GB", {"dtype": FP16}, FLASH),
    ("A100-40GB", {"dtype": BF16}, FLASH),
    ("A100-40GB", {"dtype": FP32}, EFFICIENT),
    ("A100-40GB", {"dtype": FP64}, MATH),
    ("A100-40GB", {"dtype": BF16, "is_causal": True}, FLASH),
    ("A100-40GB", {"dtype": BF16, "mask": True}, EFFICIENT),
    ("A100-40GB", {"dtype": BF16, "dropout_p": 0.1}, FLASH),
    ("A100-40GB", {"dtype": BF16, "head_size": 256}, FLASH),
    ("A100-40GB", {"dtype": BF16, "head_size": 264}, EFFICIENT),  # flash: at most 256
    ("A100-40GB", {"dtype": BF16, "head_size": 60}, FLASH),  # padded to 64
    ("A100-40GB", {"dtype": BF16, "head_size": 60, "mask": True}, MATH),
    ("A100-40GB", {"dtype": FP32, "head_size": 62}, MATH),  # multiples of 4
    ("A100-40GB", {"dtype": BF16, "length": 32, "key_length": 48}, FLASH),
    ("A100-40GB", {"dtype": BF16, "length": 32, "key_length": 48, "is_causal": True}, EFFICIENT),
    ("A100-40GB", {"dtype": BF16, "length": 1, "key_length": 48}, FLASH),
    ("A100-40GB", {"dtype": BF16, "key_heads": 2, "enable_gqa": True}, FLASH),
    # the memory-efficient kernels do not know grouped queries in 2.13, so that masks cost the most
    ("A100-40GB", {"dtype": BF16, "key_heads": 2, "enable_gqa": True, "mask": True}, MATH),
    ("A100-40GB", {"dtype": FP32, "key_heads": 2, "enable_gqa": True, "grad": True}, MATH),
    ("T4", {"dtype": FP16, "key_heads": 2, "enable_gqa": True}, MATH),
    ("A100-40GB", {"dtype": BF16, "grad": True}, FLASH),
    ("RTX-3090", {"dtype": BF16, "head_size": 256, "grad": False}, FLASH),
    # consumer Ampere and Ada cannot train flash attention of these head sizes
    ("RTX-3090", {"dtype": BF16, "head_size": 192, "grad": True}, FLASH),
    ("RTX-3090", {"dtype": BF16, "head_size": 200, "grad": True}, EFFICIENT),
    ("RTX-3090", {"dtype": BF16, "head_size": 256, "grad": True}, FLASH),
    ("RTX-3090", {"dtype": BF16, "head_size": 256, "grad": True, "dropout_p": 0.5}, EFFICIENT),
    ("RTX-4090", {"dtype": BF16, "head_size": 224, "grad": True}, EFFICIENT),
    ("A100-40GB", {"dtype": BF16, "head_size": 224, "grad": True}, FLASH),
    # Hopper and Blackwell prefer cuDNN
    ("H100", {"dtype": BF16}, CUDNN),
    ("H100", {"dtype": FP16, "mask": True}, CUDNN),
    ("H100", {"dtype": FP32}, EFFICIENT),
    ("H100", {"dtype": BF16, "head_size": 136}, CUDNN),  # cuDNN: at most 256 on Hopper
    ("H100", {"dtype": BF16, "head_size": 264}, EFFICIENT),
    ("H100", {"dtype": BF16, "head_size": 60}, FLASH),  # cuDNN: multiples of 8
    ("H100", {"dtype": BF16, "dropout_p": 0.125}, CUDNN),
    ("H100", {"dtype": BF16, "dropout_p": 0.1}, FLASH),  # cuDNN: sixteenths
    ("H100", {"dtype": BF16, "length": 1, "key_length": 1}, FLASH),
    ("H100", {"dtype": BF16, "key_heads": 2, "enable_gqa": True}, CUDNN),
    ("B200", {"dtype": BF16}, CUDNN),
    ("B200", {"dtype": BF16, "head_size": 136}, FLASH),  # cuDNN: at most 128 on Blackwell
    ("L4", {"dtype": BF16}, FLASH),
    ("A10", {"dtype": FP16}, FLASH),
]


@pytest.mark.parametrize(
    ("name", "call", "backend"), CHOICES, ids=[f"{n}-{c}" for n, c, _ in CHOICES]
)
def test_choices(name: str, call: dict[str, Any], backend: SDPBackend) -> None:
    with VirtualGPU(name, torch_version="2.13") as gpu:
        ran, out = attend(gpu, **call)
        length = call.get("length", 32)
        head_size = call.get("head_size", 64)
        assert ran == backend
        assert out.shape == (2, 4, length, head_size)
        assert out.dtype == call["dtype"]
        if call.get("grad"):
            out.sum().backward()


BATCH, SHARED, ONE = (2, 8, 32, 64), (2, 2, 32, 64), (2, 1, 32, 64)
MANY = (65536, 1, 2, 8)
BY_VERSION: list[tuple[str, dict[str, Any], dict[str, SDPBackend]]] = [
    # the memory-efficient kernels do not know grouped queries before 2.14
    ("A100-40GB", {"dtype": FP32, "k": SHARED, "gqa": True}, {"2.13": MATH, "2.14": EFFICIENT}),
    # one head of keys and values for all queries, without asking for it
    ("A100-40GB", {"k": ONE}, {"2.13": MATH, "2.14": FLASH}),
    ("H100", {"k": ONE}, {"2.13": MATH, "2.14": CUDNN}),
    ("T4", {"dtype": FP32, "k": ONE}, {"2.13": MATH, "2.14": EFFICIENT}),
    ("A100-40GB", {"k": SHARED}, {"2.15": MATH}),
    # without a batch
    ("A100-40GB", {"q": BATCH[1:]}, {"2.13": MATH, "2.14": FLASH}),
    ("A100-40GB", {"q": BATCH[1:], "mask": (32, 32)}, {"2.13": MATH, "2.14": EFFICIENT}),
    ("H100", {"q": BATCH[1:], "mask": (8, 32, 32)}, {"2.13": MATH, "2.15": CUDNN}),
    ("A100-40GB", {"q": BATCH[2:]}, {"2.15": MATH}),
    # operands that do not begin at a multiple of 16 B
    ("A100-40GB", {"dtype": FP32, "offset": 2}, {"2.12": EFFICIENT, "2.13": MATH}),
    ("A100-40GB", {"dtype": FP32, "offset": 4}, {"2.13": EFFICIENT}),
    ("T4", {"dtype": FP32, "offset": 2}, {"2.13": EFFICIENT}),
    # more blocks than a grid has
    ("A100-40GB", {"q": MANY}, {"2.14": FLASH, "2.15": EFFICIENT}),
    ("H100", {"q": MANY}, {"2.12": CUDNN, "2.13": FLASH, "2.15": EFFICIENT}),
    ("H100", {"q": (1, *MANY[:1], *MANY[2:])}, {"2.12": CUDNN, "2.13": FLASH, "2.15": EFFICIENT}),
    # cuDNN: head sizes, those of keys and values, heads, masks and decoding
    ("B200", {"q": (2, 8, 32, 136)}, {"2.13": FLASH, "2.14": CUDNN}),
    ("H100", {"q": (2, 8, 32, 136), "grad": True}, {"2.13": CUDNN, "2.14": FLASH}),
    ("H100", {"q": (2, 8, 32, 256), "grad": True}, {"2.13": CUDNN, "2.14": CUDNN}),
    ("B200", {"q": (2, 8, 32, 192), "v": (2, 8, 32, 128)}, {"2.13": CUDNN, "2.14": CUDNN}),
    ("B200", {"q": (2, 8, 32, 192), "v": (2, 8, 32, 136)}, {"2.13": EFFICIENT, "2.14": CUDNN}),
    ("H100", {"k": SHARED, "v": ONE, "gqa": True}, {"2.13": CUDNN}),
    ("A100-40GB", {"k": SHARED, "v": ONE, "gqa": True}, {"2.13": MATH}),
    ("H100", {"mask": (8, 32, 32)}, {"2.13": EFFICIENT}),
    ("H100", {"mask": (8, 1, 32)}, {"2.13": EFFICIENT}),
    ("H100", {"mask": (2, 1, 1, 32)}, {"2.13": CUDNN}),
    ("B200", {"q": (2, 8, 1, 64), "k": BATCH}, {"2.13": CUDNN, "2.14": FLASH, "2.15": CUDNN}),
    ("H100", {"q": (2, 8, 1, 64), "k": BATCH}, {"2.14": CUDNN}),
]


@pytest.mark.parametrize(
    ("name", "call", "backends"), BY_VERSION, ids=[f"{n}-{c}" for n, c, _ in BY_VERSION]
)
def test_choices_by_version(
    name: str, call: dict[str, Any], backends: dict[str, SDPBackend]
) -> None:
    """Compare with what `torch._fused_sdp_choice` returned on the native engine."""

    def choose(
        q: tuple[int, ...] = BATCH,
        k: tuple[int, ...] | None = None,
        v: tuple[int, ...] | None = None,
        dtype: torch.dtype = BF16,
        offset: int = 0,
        mask: tuple[int, ...] | None = None,
        grad: bool = False,
        gqa: bool = False,
    ) -> SDPBackend:
        operands = [
            torch.zeros(offset + math.prod(size), dtype=dtype, device="cuda")[offset:]
            .view(size)
            .requires_grad_(grad)
            for size in (q, k or q, v or k or q)
        ]
        added = None if mask is None else torch.zeros(mask, dtype=dtype, device="cuda")
        code = torch._fused_sdp_choice(*operands, added, 0.0, False, enable_gqa=gqa)
        return SDPBackend(code)

    for version, backend in backends.items():
        with VirtualGPU(name, torch_version=version):
            assert choose(**call) == backend, version


def test_a_mask_with_a_gradient_is_not_cudnns() -> None:
    with VirtualGPU("H100", torch_version="2.13"):
        q = torch.zeros(BATCH, dtype=BF16, device="cuda")
        mask = torch.zeros(32, 32, dtype=BF16, device="cuda", requires_grad=True)
        assert torch._fused_sdp_choice(q, q, q, mask) == EFFICIENT.value


def test_a_warning_of_random_results_leaves_the_choice() -> None:
    with VirtualGPU("H100", torch_version="2.13"):
        q = torch.zeros(BATCH, dtype=BF16, device="cuda")
        chosen = []
        for warn_only in (True, False):
            torch.use_deterministic_algorithms(True, warn_only=warn_only)
            chosen.append(SDPBackend(torch._fused_sdp_choice(q, q, q)))
            torch.use_deterministic_algorithms(False)
        assert chosen == [CUDNN, FLASH]


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_one_sequence_is_a_batch_of_one_since_2_14(dtype: torch.dtype) -> None:
    """The output is a view of the same size: 8 heads, 96 tokens and a head size of 64."""
    seen = []
    with VirtualGPU("A100-40GB", torch_version="2.14"):
        for size in ((8, 96, 64), (1, 8, 96, 64)):
            seen.append(events_of_attention(size, size, size, dtype=dtype))
    assert seen[0] == seen[1]
    assert seen[0][0][1] in (8, 8 * 96 * 64 * 2)  # a seed in float32


@pytest.mark.parametrize("gqa", [True, False])
def test_gradients_of_shared_heads_are_summed(gqa: bool) -> None:
    """Before that, there is one for each head: 2 x 8 x 96 x 64 numbers of 4 B, as natively."""
    of_queries, heads = (2, 8, 96, 64), 2 if gqa else 1
    shared = (2, heads, 96, 64)
    with VirtualGPU("A100-40GB", torch_version="2.15"):
        q, k, v = (
            torch.zeros(size, device="cuda", requires_grad=True)
            for size in (of_queries, shared, shared)
        )
        output = functional.scaled_dot_product_attention(q, k, v, enable_gqa=gqa)
        gradient = torch.ones_like(output)
        torch.cuda.memory._record_memory_history("all", context=None)
        output.backward(gradient)
        (trace,) = torch.cuda.memory._snapshot()["device_traces"]
        torch.cuda.memory._record_memory_history(None)
        assert k.grad is not None
        assert k.grad.shape == shared
    full, part = math.prod(of_queries) * 4, math.prod(shared) * 4
    allocated = [event["size"] for event in trace if event["action"] == "alloc"]
    assert allocated[:5] == [full, part, part, full, full]


def test_keys_and_values_may_have_different_heads(gpu: VirtualGPU) -> None:
    q, k, v = (torch.zeros(2, heads, 32, 64, device="cuda") for heads in (8, 2, 4))
    output = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert output.shape == q.shape


@pytest.mark.parametrize(("torch_version", "backend"), [("2.11", CUDNN), ("2.13", FLASH)])
def test_by_now_cudnn_drops_out_sixteenths_only(torch_version: str, backend: SDPBackend) -> None:
    with VirtualGPU("H100", torch_version=torch_version) as gpu:
        assert attend(gpu, BF16, dropout_p=0.1)[0] == backend
        assert attend(gpu, BF16, dropout_p=0.125)[0] == CUDNN


@pytest.mark.parametrize("backend", [FLASH, EFFICIENT, CUDNN, MATH])
def test_one_backend_can_be_forced(gpu: VirtualGPU, backend: SDPBackend) -> None:
    with sdpa_kernel(backend):
        assert attend(gpu, BF16)[0] == backend


def test_backends_can_be_ordered(gpu: VirtualGPU) -> None:
    with sdpa_kernel([EFFICIENT, FLASH], set_priority=True):
        assert attend(gpu, BF16)[0] == EFFICIENT
    with sdpa_kernel([MATH, FLASH], set_priority=True):
        assert attend(gpu, BF16)[0] == MATH
    with sdpa_kernel([EFFICIENT, MATH]):
        assert attend(gpu, BF16)[0] == EFFICIENT
    assert attend(gpu, BF16)[0] == FLASH


@pytest.mark.parametrize(
    ("backend", "call"),
    [
        (FLASH, {"dtype": FP32}),
        (FLASH, {"dtype": BF16, "mask": True}),
        (EFFICIENT, {"dtype": FP64}),
        (CUDNN, {"dtype": FP32}),
        (CUDNN, {"dtype": BF16, "head_size": 256}),
    ],
)
def test_a_forced_backend_that_cannot(
    gpu: VirtualGPU, backend: SDPBackend, call: dict[str, Any]
) -> None:
    with (
        sdpa_kernel(backend),
        pytest.raises(RuntimeError, match=r"No available kernel\. Aborting execution\."),
    ):
        attend(gpu, **call)


def zeros(*size: int, device: str, dtype: torch.dtype = FP32) -> Tensor:
    return torch.zeros(size, device=device, dtype=dtype)


def test_the_memory_of_attention(gpu: VirtualGPU) -> None:
    # batch 2, 4 heads, 128 tokens, head size 64, in float16: one of q, k, v, out is 131,072 B
    one = 2 * 4 * 128 * 64 * 2
    scores = 2 * 4 * 128 * 128 * 2
    kept = {}
    for backend in (FLASH, EFFICIENT, MATH):
        torch._C._cuda_clearCublasWorkspaces()
        before = torch.cuda.memory_allocated()
        with sdpa_kernel(backend):
            _, out = attend(gpu, FP16, length=128, grad=True)
        torch._C._cuda_clearCublasWorkspaces()
        kept[backend] = torch.cuda.memory_allocated() - before - 4 * one  # with q, k, v
        del out
    # flash keeps the log-sum-exp, 2 x 4 x 128 float32 = 4096 B, and the seeds of its dropout
    assert 4096 <= kept[FLASH] <= 4096 + 2 * 512
    assert 4096 <= kept[EFFICIENT] <= 4096 + 2 * 512
    # math keeps softmax(scores), at least: quadratic in the length
    assert kept[MATH] >= scores


def test_multihead_attention_layers_choose_too(gpu: VirtualGPU) -> None:
    layer = torch.nn.MultiheadAttention(64, 4, batch_first=True).cuda().half()
    x = torch.zeros(2, 16, 64, dtype=FP16, device="cuda")
    gpu.dispatcher.seen.clear()
    layer(x, x, x, need_weights=False)
    assert aten._scaled_dot_product_flash_attention.default in gpu.dispatcher.seen
    gpu.dispatcher.seen.clear()
    _, weights = layer(x, x, x)
    assert weights.shape == (2, 16, 16)
    assert not set(KERNELS) & set(gpu.dispatcher.seen)


def test_a_causal_mask_begins_as_ones_that_go_before_it_is_used() -> None:
    """As the native engine shows. The queries are scaled first, 2 x 256 x 8 numbers of 4 B.

    Then there are ones and their triangle, and with two scalars the mask to add: 256 x 256 numbers.
    """
    with VirtualGPU("A100-40GB", torch_version="2.13"), sdpa_kernel(MATH):
        q, k, v = (torch.zeros(1, 2, 256, 8, device="cuda") for _ in range(3))
        torch.cuda.memory._record_memory_history("all", context=None)
        functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        (trace,) = torch.cuda.memory._snapshot()["device_traces"]
        torch.cuda.memory._record_memory_history(None)
    events = [(event["action"], event["size"]) for event in trace]
    requests = [event for event in events if event[0] in ("alloc", "free_requested")]
    bools, mask = 256 * 256, 256 * 256 * 4
    assert requests[:7] == [
        ("alloc", 2 * 256 * 8 * 4),
        ("alloc", bools),
        ("alloc", bools),
        ("free_requested", bools),
        ("alloc", 4),
        ("alloc", 4),
        ("alloc", mask),
    ]


def events_of_attention(*shapes: tuple[int, ...], **options: Any) -> list[tuple[str, int]]:
    """What attention allocates and frees, by requested sizes."""
    q, k, v = (
        torch.zeros(shape, dtype=options.get("dtype", BF16), device="cuda", requires_grad=True)
        for shape in shapes
    )
    torch.cuda.memory._record_memory_history("all", context=None)
    options.pop("dtype", None)
    output = functional.scaled_dot_product_attention(q, k, v, **options)
    (trace,) = torch.cuda.memory._snapshot()["device_traces"]
    torch.cuda.memory._record_memory_history(None)
    del output
    return [
        (event["action"].partition("_")[0], event["size"])
        for event in trace
        if event["action"] in ("alloc", "free_completed")
    ]


# Batch, heads, queries, head size, keys; the mask's shape and dtype; what is copied of the mask.
MASKS: dict[str, tuple[tuple[int, ...], tuple[int, ...], torch.dtype, int | None]] = {
    # 77 keys to 80, for each query of each batch: the heads share it
    "of batches": ((3, 8, 1030, 8, 77), (3, 1, 1030, 77), torch.bool, 3 * 1030 * 80 * 2),
    "of padding": ((3, 8, 700, 80, 77), (3, 1, 1, 77), torch.bool, 3 * 80 * 2),
    "of rows": ((2, 8, 700, 80, 77), (700, 77), BF16, 700 * 80 * 2),
    "of heads": ((3, 2, 77, 40, 77), (1, 2, 77, 77), BF16, 2 * 77 * 80 * 2),
    # 1 key to 8, 257 to 264, 100 to 104
    "of one key": ((3, 8, 200, 96, 1), (3, 8, 200, 1), BF16, 3 * 8 * 200 * 8 * 2),
    "of everything": ((2, 4, 257, 32, 257), (2, 4, 257, 257), BF16, 2 * 4 * 257 * 264 * 2),
    "of 4 over": ((2, 2, 100, 40, 100), (2, 2, 100, 100), BF16, 2 * 2 * 100 * 104 * 2),
    # rows that begin at multiples of 8 elements already
    "aligned": ((2, 4, 100, 40, 24), (2, 1, 100, 24), BF16, None),
    "aligned, of rows": ((1, 4, 16, 8, 200), (16, 200), BF16, None),
}


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_padded_to_8_before_heads_share_it(name: str) -> None:
    """Sizes are those of PyTorch 2.13's CUDA build on the native engine."""
    (batch, heads, queries, size, keys), shape, dtype, copied_bytes = MASKS[name]
    with VirtualGPU("A100-40GB", torch_version="2.13"):
        if dtype == torch.bool:
            mask = torch.ones(shape, dtype=dtype, device="cuda")
        else:
            mask = torch.zeros(shape, dtype=dtype, device="cuda")
        of_keys = (batch, heads, keys, size)
        events = events_of_attention(
            (batch, heads, queries, size), of_keys, of_keys, attn_mask=mask
        )
    added_bytes = mask.numel() * 2
    expected = [] if dtype != torch.bool else [2, 2, added_bytes]  # 0, -inf, and either for each
    expected += [] if copied_bytes is None else [copied_bytes]
    expected += [batch * heads * queries * size * 2]  # the output
    allocated = [size for action, size in events if action == "alloc"]
    assert allocated[: len(expected)] == expected
    assert len(allocated) <= len(expected) + 1  # and the sums, if they are kept


def test_attention_of_ordinary_ops_lets_go_in_the_order_of_cpp() -> None:
    """As the native engine shows: the last product, the float32 copies of operands, the weights.

    The copy of the values and the scaled queries are kept for the backward pass.
    """
    with VirtualGPU("A100-40GB"), sdpa_kernel(MATH):
        events = events_of_attention((1, 2, 64, 8), (1, 2, 80, 8), (1, 2, 80, 16))
    product, keys, queries = 2 * 64 * 16 * 4, 2 * 80 * 8 * 4, 2 * 64 * 8 * 4
    weights = 2 * 64 * 80 * 2
    freed = [size for action, size in events if action == "free"]
    assert freed[-4:] == [product, keys, queries, weights]


def test_results_that_nothing_needs_go_in_the_order_of_cpp(gpu: VirtualGPU) -> None:
    """As the native engine shows: logsumexp, 2 x 8 x 96 numbers of 4 B, then seed and offset."""
    with torch.no_grad():
        events = events_of_attention(*[(2, 8, 96, 64)] * 3)
    assert [size for action, size in events if action == "free"] == [6_144, 16, 8]
