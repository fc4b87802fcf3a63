"""What real training code uses: layers of torch.nn, torch.func, data loaders, generators."""

from __future__ import annotations

import resource
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn import functional
from torch.nn.utils import rnn
from torch.utils.data import DataLoader, TensorDataset

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu import VirtualGPU
from vramlab.units import GIB, MIB

CUDA0 = torch.device("cuda", 0)


def z(*size: int) -> Tensor:
    return torch.zeros(size, device="cuda", requires_grad=True)


def longs(*size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.long, device="cuda")


def lstm(**options: object) -> Callable[[], Tensor]:
    return lambda: nn.LSTM(8, 6, **options).cuda()(z(4, 5, 8))[0]  # type: ignore[arg-type]


PROGRAMS: dict[str, Callable[[], Tensor]] = {
    "lstm": lstm(),
    "lstm, both directions": lstm(bidirectional=True),
    "lstm, two layers": lstm(num_layers=2, dropout=0.1),
    "lstm, batch first": lstm(batch_first=True),
    "lstm, projection": lstm(proj_size=3),
    "gru": lambda: nn.GRU(8, 6).cuda()(z(4, 5, 8))[0],
    "rnn": lambda: nn.RNN(8, 6).cuda()(z(4, 5, 8))[0],
    "lstm cell": lambda: nn.LSTMCell(8, 6).cuda()(z(4, 8))[0],
    "gru cell": lambda: nn.GRUCell(8, 6).cuda()(z(4, 8)),
    "convolutional net": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    ).cuda()(z(2, 3, 16, 16)),
    "channels last": lambda: (
        nn.Conv2d(3, 4, 3)
        .cuda()
        .to(memory_format=torch.channels_last)(z(1, 3, 8, 8).to(memory_format=torch.channels_last))
    ),
    "transposed convolution": lambda: nn.ConvTranspose2d(3, 4, 3).cuda()(z(1, 3, 8, 8)),
    "convolution in 1 d": lambda: nn.Conv1d(3, 4, 3).cuda()(z(1, 3, 8)),
    "convolution in 3 d": lambda: nn.Conv3d(3, 4, 3).cuda()(z(1, 3, 8, 8, 8)),
    "bilinear": lambda: functional.interpolate(z(1, 3, 8, 8), scale_factor=2, mode="bilinear"),
    "reflection": lambda: functional.pad(z(1, 3, 8, 8), (1, 1, 1, 1), mode="reflect"),
    "unfold": lambda: functional.unfold(z(1, 4, 8, 8), 2),
    "pixel shuffle": lambda: functional.pixel_shuffle(z(1, 4, 8, 8), 2),
    "instance norm": lambda: nn.InstanceNorm2d(4).cuda()(z(2, 4, 8, 8)),
    "grid sample": lambda: functional.grid_sample(
        z(1, 1, 4, 4), z(1, 4, 4, 2), align_corners=False
    ),
    "dropout in 2 d": lambda: functional.dropout2d(z(2, 4, 8, 8)),
    "attention layer": lambda: nn.MultiheadAttention(16, 4, batch_first=True).cuda()(
        z(2, 5, 16), z(2, 5, 16), z(2, 5, 16)
    )[0],
    "attention layer with a mask": lambda: nn.MultiheadAttention(16, 4, batch_first=True).cuda()(
        z(2, 5, 16),
        z(2, 5, 16),
        z(2, 5, 16),
        key_padding_mask=torch.zeros(2, 5, dtype=torch.bool, device="cuda"),
    )[0],
    "encoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2
    ).cuda()(z(2, 5, 16)),
    "transformer": lambda: nn.Transformer(16, 4, 1, 1, 32, batch_first=True).cuda()(
        z(2, 5, 16),
        z(2, 5, 16),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, device="cuda"),
    ),
    "embedding": lambda: nn.Embedding(10, 4, padding_idx=0).cuda()(longs(6)),
    "embedding with a norm": lambda: nn.Embedding(10, 4, max_norm=1.0).cuda()(longs(6)),
    "bags": lambda: nn.EmbeddingBag(10, 4, mode="mean").cuda()(longs(6), longs(2)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)).cuda()(z(2, 4)),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).cuda()(
        z(2, 4)
    ),
    "cross entropy, smoothed": lambda: functional.cross_entropy(
        z(4, 5), longs(4), label_smoothing=0.1
    ),
    "cross entropy of images": lambda: functional.cross_entropy(z(2, 5, 3, 3), longs(2, 3, 3)),
    "cross entropy of probabilities": lambda: functional.cross_entropy(z(4, 5), z(4, 5)),
    "binary cross entropy": lambda: functional.binary_cross_entropy(z(4).sigmoid(), z(4).detach()),
    "divergence": lambda: functional.kl_div(z(4, 5), z(4, 5), reduction="batchmean"),
    "triplets": lambda: functional.triplet_margin_loss(z(4, 5), z(4, 5), z(4, 5)),
    "ctc": lambda: functional.ctc_loss(
        z(10, 2, 5).log_softmax(-1),
        torch.ones(2, 3, dtype=torch.long, device="cuda"),
        torch.tensor([10, 10]),
        torch.tensor([3, 3]),
    ),
    "fft": lambda: torch.fft.rfft(z(16)).abs(),
    "svd": lambda: torch.linalg.svd(z(4, 4)).S,
    "sampling": lambda: torch.distributions.Normal(z(3), z(3).exp()).rsample(),
    "gumbel": lambda: functional.gumbel_softmax(z(3, 4), hard=True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_trains(gpu: VirtualGPU, name: str) -> None:
    result = PROGRAMS[name]()
    assert result.device == CUDA0
    result.sum().backward()


def test_batch_norm_keeps_its_statistics_on_the_gpu(gpu: VirtualGPU) -> None:
    layer = nn.BatchNorm2d(4).cuda()
    before = torch.cuda.memory_allocated()
    layer(z(2, 4, 8, 8))
    assert torch.cuda.memory_allocated() == before
    assert layer.num_batches_tracked is not None
    assert layer.num_batches_tracked.device == CUDA0
    layer.eval()
    layer(z(2, 4, 8, 8))


def test_packed_sequences(gpu: VirtualGPU) -> None:
    padded = z(5, 3, 8)
    packed = rnn.pack_padded_sequence(padded, torch.tensor([5, 3, 2]))
    assert packed.data.shape == (5 + 3 + 2, 8)
    assert packed.data.device == CUDA0
    # steps 0 and 1 have all three sequences, step 2 the first two, steps 3 and 4 the first
    assert packed.batch_sizes.tolist() == [3, 3, 2, 1, 1]
    out, _ = nn.LSTM(8, 6).cuda()(packed)
    unpacked, lengths = rnn.pad_packed_sequence(out)
    assert (unpacked.shape, lengths.tolist()) == ((5, 3, 6), [5, 3, 2])
    unpacked.sum().backward()
    assert padded.grad is not None


def test_functional_transforms(gpu: VirtualGPU) -> None:
    layer = nn.Linear(4, 1).cuda()
    parameters = dict(layer.named_parameters())
    x = torch.zeros(8, 4, device="cuda")

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        result: Tensor = functional_call(layer, parameters, (x,)).sum()
        return result

    assert grad(loss)(parameters, x)["weight"].device == CUDA0
    per_sample = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    assert per_sample["weight"].shape == (8, 1, 4)
    assert per_sample["weight"].device == CUDA0
    assert jacrev(torch.exp)(x[0]).shape == (4, 4)


def test_data_loaders(gpu: VirtualGPU) -> None:
    data = TensorDataset(torch.arange(12.0).view(6, 2))
    (first, *_) = DataLoader(data, batch_size=2, pin_memory=True)
    assert first[0].is_pinned()
    assert first[0].tolist() == [[0, 1], [2, 3]]
    moved = first[0].to("cuda", non_blocking=True)
    assert torch.cuda.memory_allocated() == 512
    del moved


def test_worker_processes_do_not_touch_the_books(gpu: VirtualGPU) -> None:
    kept = torch.zeros(1024, device="cuda")
    data = TensorDataset(torch.arange(8.0).view(4, 2))
    loader = DataLoader(data, batch_size=2, num_workers=1, pin_memory=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork() beside threads
        batches = [batch[0] for batch in loader]
    assert [batch.tolist() for batch in batches] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert all(batch.is_pinned() for batch in batches)
    assert torch.cuda.memory_allocated() == 4096
    del kept


def test_pinned_memory(gpu: VirtualGPU) -> None:
    x = torch.ones(10).pin_memory()
    assert x.is_pinned()
    assert x.pin_memory() is x
    assert torch.empty(3, pin_memory=True).is_pinned()
    assert not torch.empty(3).is_pinned()
    assert (x + 1).tolist() == [2] * 10
    with pytest.raises(RuntimeError, match=r"cannot pin 'torch\.cuda\.FloatTensor' only dense CPU"):
        x.cuda().pin_memory()


def test_a_model_of_many_gib_needs_no_host_memory(gpu: VirtualGPU) -> None:
    # two layers of a model of 13 billion parameters: 5120 wide, 13824 inside, in float32
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    block = nn.Sequential(*(nn.Linear(5120, 13824, bias=False) for _ in range(8)))
    nn.init.normal_(block[0].weight)
    block.half().cuda()
    # 135 MiB each, in segments of 136 MiB; a remainder of 1 MiB is not split off
    assert 135 * MIB == 5120 * 13824 * 2
    assert torch.cuda.memory_allocated() == 8 * 136 * MIB
    block.cpu()
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib * 1024 < GIB // 4


def test_host_tensors_hold_values_up_to_a_size(gpu: VirtualGPU) -> None:
    small, large = torch.ones(4 * MIB - 1), torch.ones(4 * MIB)  # just below, and 16 MiB
    assert small.sum().item() == 4 * MIB - 1
    assert "no values" in repr(large)
    assert (large.device.type, large.shape) == ("cpu", (4 * MIB,))
    assert torch.cuda.memory_allocated() == 0
    with VirtualGPU("T4", host_values_below_bytes=64):
        assert "no values" in repr(torch.ones(16))
        assert torch.ones(15).sum().item() == 15


def test_tools_of_torch(gpu: VirtualGPU) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    layer = nn.Linear(8, 16).cuda()
    with FlopCounterMode(display=False) as flops:
        layer(z(4, 8))
    assert flops.get_total_flops() == 2 * 4 * 8 * 16
    with FlopCounterMode(display=False) as flops:  # casts in the backward pass keep their GPU
        (layer.half()(z(4, 8).half()).float().relu()).square().mean().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.device == CUDA0
    assert flops.get_total_flops() == 3 * 2 * 4 * 8 * 16  # forward, and both gradients
    with FlopCounterMode(display=False):
        assert torch.empty(3, device="meta").is_meta
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()


def test_generators(gpu: VirtualGPU) -> None:
    generator = torch.Generator("cuda").manual_seed(3)
    assert generator.device == CUDA0
    assert isinstance(generator, torch.Generator)
    assert torch.randn(3, generator=generator, device="cuda").device == CUDA0
    assert torch.randperm(5, generator=generator, device="cuda").device == CUDA0
    torch.empty(3, device="cuda").normal_(generator=generator)
    state = torch.cuda.get_rng_state()
    torch.cuda.set_rng_state(state)
    torch.cuda.manual_seed_all(1)
    assert torch.cuda.initial_seed() == 1
    host = torch.Generator().manual_seed(0)
    assert torch.equal(
        torch.rand(3, generator=host), torch.rand(3, generator=torch.Generator().manual_seed(0))
    )


def test_compile_runs_eagerly_and_says_so(gpu: VirtualGPU) -> None:
    with pytest.warns(UserWarning, match=r"torch\.compile is not modelled on a virtual GPU"):
        compiled = torch.compile(model := nn.Sequential(nn.Linear(3, 3)).cuda())
    assert compiled(z(2, 3)).device == CUDA0
    assert compiled._orig_mod is model
    assert list(compiled.state_dict()) == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    assert compiled.eval() is compiled
    assert not model.training
    assert [caveat.split()[0] for caveat in gpu.machine.caveats] == ["torch.compile"]
    with pytest.warns(UserWarning, match="not modelled"):
        assert torch.compile(abs, dynamic=True) is torch.compile(dynamic=True)(abs) is abs


def test_what_is_not_modelled_says_so_and_stays_a_class(gpu: VirtualGPU) -> None:
    with pytest.raises(UnsupportedOnVirtualGPU, match="green contexts are not modelled"):
        torch.cuda.GreenContext.create(1, 0)
    with pytest.raises(UnsupportedOnVirtualGPU, match=r"torch\.cuda\.FloatStorage is not modelled"):
        torch.cuda.FloatStorage(4)
    assert not hasattr(torch.cuda.GreenContext, "create")
    assert not isinstance(gpu, torch.cuda.GreenContext)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # typed storages are deprecated
        storage = torch.zeros(4, device="cuda").storage()  # PyTorch makes it without its type
    assert isinstance(storage, torch.cuda.FloatStorage)
    assert not isinstance(storage, torch.cuda.HalfStorage)
