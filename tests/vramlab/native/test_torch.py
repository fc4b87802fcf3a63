"""PyTorch's CUDA build on the substitutes, against the H200's recording.

Needs `vramlab native setup --torch 2.11.0` (0.5 GiB to download); convolutions, `--cudnn` as well.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import vramlab
from vramlab import catalogue, native
from vramlab.native.builds import Build
from vramlab.native.compiler import find_compiler
from vramlab.native.launch import environment, try_out
from vramlab.native.report import CORE, ENVIRONMENT, Kind, make_file
from vramlab.units import MIB

pytestmark = pytest.mark.long

RECORDING = Path(__file__).parents[3] / "assets" / "recordings" / "h200-torch2.11.0.json"


@pytest.fixture(scope="module")
def build() -> Build:
    try:
        return native.find("2.11.0")
    except native.NativeEngineError as error:
        pytest.skip(str(error))


def run(build: Build, program: str, gpu: str = "H200", count: int = 1, **variables: str) -> Any:
    """What a program assigns to `answer`."""
    # At the end, autograd's thread frees what PyTorch 2.15 keeps of Python, before Python ends.
    pause = "import time\ntime.sleep(0.2)"
    printed = "print(json.dumps(answer), flush=True)"
    text = f"import json, torch\n{textwrap.dedent(program)}\n{printed}\n{pause}"
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=environment(build, catalogue.find(gpu), count) | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "name",
    [
        "zoo/mlp-1024x4-b256-fp32-adamw",
        "zoo/gpt2-b8-s1024-fp32-adamw-efficient",
        "zoo/bert-base-b32-s128-fp32-adamw-eager",
        "zoo/vgg16-b32-fp32-infer",
        "rule/aten.prod.default",
    ],
)
def test_every_number_is_the_recordings(build: Build, name: str) -> None:
    """Allocated, peak, reserved and peak reserved of every stage, in bytes."""
    if "vgg" in name and build.cudnn is None:
        pytest.skip("convolutions need cuDNN: `vramlab native setup --torch 2.11.0 --cudnn`")
    if not name.startswith(("zoo/mlp", "zoo/vgg", "rule/")):
        pytest.importorskip("transformers")
    found = run(
        build,
        f"""
        from vramlab.recordings.measuring import measure
        answer = [
            [stage.name, stage.allocated_after_bytes, stage.peak_allocated_bytes,
             stage.reserved_after_bytes, stage.peak_reserved_bytes]
            for stage in measure({name!r}, "python").stages
        ]
        """,
    )
    recorded = json.loads(RECORDING.read_text())["entries"][name]["stages"]
    assert len(found) == len(recorded) > 5
    assert [stage[1:] for stage in found] == [stage[1:5] for stage in recorded]


def test_properties_are_the_recordings(build: Build) -> None:
    recorded = json.loads(RECORDING.read_text())["machine"]["properties"]
    found = run(
        build,
        f"""
        properties = torch.cuda.get_device_properties(0)
        answer = {{name: getattr(properties, name) for name in {list(recorded)}}}
        """,
    )
    assert found == recorded


def test_out_of_memory_has_pytorchs_words_and_numbers(build: Build) -> None:
    text = run(
        build,
        """
        answer = ""
        try:
            torch.empty(1 << 40, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            answer = str(error)
        """,
        gpu="T4",
    )
    t4 = catalogue.find("T4")
    assert "Tried to allocate 4096.00 GiB" in text
    assert f"total capacity of {t4.total_bytes / 2**30:.2f} GiB" in text
    assert f"this process has {t4.context_bytes / MIB:.2f} MiB memory in use" in text


def test_expandable_segments_grow_by_pages(build: Build) -> None:
    """30 MiB are two pages of 20 MiB; 45 MiB more take 35 that the segment lacks: two more."""
    found = run(
        build,
        """
        one = torch.empty(30 * 2**20, dtype=torch.uint8, device="cuda")
        steps = [torch.cuda.memory_reserved()]
        del one
        two = torch.empty(45 * 2**20, dtype=torch.uint8, device="cuda")
        steps.append(torch.cuda.memory_reserved())
        segments = torch.cuda.memory_snapshot()
        answer = steps, [segment["is_expandable"] for segment in segments]
        """,
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
    )
    assert found == [[40 * MIB, 60 * MIB], [True]]


def test_captured_graphs_have_a_pool_of_their_own(build: Build) -> None:
    pools, empty = run(
        build,
        """
        import warnings
        x = torch.zeros(1000, 1000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.cuda.graph(graph):
                y = x @ x
        graph.replay()
        torch.cuda.synchronize()
        pools = {tuple(each["segment_pool_id"]) for each in torch.cuda.memory_snapshot()}
        answer = len(pools), [str(each.message) for each in caught if "empty" in str(each.message)]
        """,
    )
    assert pools == 2
    assert empty == []


def test_values_that_were_copied_come_back(build: Build) -> None:
    assert run(
        build,
        """
        x = torch.tensor([3, 1, 2]).cuda()
        y = x.to("cuda:1")
        pinned = torch.arange(3).pin_memory()
        answer = x.tolist(), y.tolist(), str(y.device), pinned.is_pinned()
        """,
        count=2,
    ) == [[3, 1, 2], [3, 1, 2], "cuda:1", True]


def test_what_has_no_meaning_fails_and_is_named(build: Build, tmp_path: Path) -> None:
    script = tmp_path / "fft.py"
    script.write_text("import torch\ntorch.fft.fft(torch.zeros(8, device='cuda'))\n")
    status, calls = native.run(build, [str(script)], catalogue.find("T4"))
    assert status == 1
    refused = [(call.function, call.count) for call in calls if call.kind == Kind.REFUSED]
    assert refused == [("cufftCreate", 1)]


def test_the_exit_status_is_the_programs(build: Build, tmp_path: Path) -> None:
    script = tmp_path / "end.py"
    for text, expected in (
        ("raise SystemExit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
    ):
        script.write_text(text)
        assert native.run(build, [str(script)], catalogue.find("T4"))[0] == expected


def test_small_whole_and_boolean_tensors_are_true(build: Build) -> None:
    """Whatever steers a program: positions, masks, counts, and a GradScaler's scale.

    A healthy run doubles the scale after two steps without infinities: 65536 to 131072.
    """
    program = """
    from vramlab.native.values import KnownValues
    with KnownValues() as values:
        places = torch.arange(10, device="cuda")
        mask = torch.ones(2, 5, dtype=torch.bool, device="cuda")
        mask[:, 2:] = False
        sums = torch.tensor([3, 1, 2]).cuda().cumsum(-1)
        answer = [
            places.tolist(), (places > 4).sum().item(), bool((places.diff() != 1).any()),
            mask.sum(1).tolist(), sums.to(torch.int32).tolist(), places.view(2, 5)[1, 2].item(),
        ]
        scaler = torch.amp.GradScaler("cuda", growth_interval=2)
        layer = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(2):
            loss = layer(torch.randn(2, 4, device="cuda")).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        answer.append(scaler.get_scale())
        guessed = torch.randint(0, 9, (3,), device="cuda")
        guessed.tolist(), loss.item()
        answer.append(sorted(what for what, _ in values.reads))
        import vramlab
        with vramlab.VirtualGPU("T4"):  # its tensors have no memory
            answer.append((torch.arange(3, device="cuda") + 1).shape[0])
    """
    assert run(build, program) == [
        list(range(10)), 5, False, [2, 2], [3, 4, 6], 7, 131072.0, ["item()", "tolist()"], 3
    ]  # fmt: skip


def test_keeping_values_allocates_nothing(build: Build) -> None:
    program = """
    from contextlib import nullcontext
    from vramlab.native.values import KnownValues
    answer = []
    for values in (nullcontext(), KnownValues()):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with values:
            places = torch.arange(1000, device="cuda")
            near = (places[None] - places[:, None]).abs() < 4  # 1 MB: not kept
            (places * 2).cumsum(0)[places > 3]
        answer.append(torch.cuda.max_memory_allocated())
        del places, near
    """
    plain, kept = run(build, program)
    assert kept == plain


def test_what_is_compiled_is_left_to_the_compiler(build: Build) -> None:
    """In one graph, as without the mode; what it changes in place is known no more."""
    program = """
    from torch._dynamo.utils import counters
    from vramlab.native.values import KnownValues
    with KnownValues() as values:
        def double(x, count):
            count.add_(1)
            return x * 2
        layer = torch.nn.Linear(4, 4).cuda()
        compiled = torch.compile(backend="aot_eager")(double)
        module = torch.compile(layer, backend="aot_eager")
        count, kept = torch.tensor([1, 2]).cuda(), torch.tensor([3]).cuda()
        compiled(module(torch.ones(2, 4, device="cuda")), count).sum().backward()
        answer = [
            len(counters["graph_break"]), layer.weight.grad is not None,
            (kept + 1).tolist(), len(values.reads),
        ]
        count.tolist()
        answer += [len(values.reads), torch.compile.__name__]
    answer.append("compile_apart" in repr(torch.compile))
    """
    assert run(build, program) == [0, True, [4], 0, 1, "compile", False]


def test_cudnns_attention_is_planned_by_cudnn(build: Build) -> None:
    """Outputs of 4 x 12 x 1024 x 64 in bfloat16, a float32 for each query, seed and offset."""
    if build.nvrtc is None:
        pytest.skip("cuDNN's attention needs `vramlab native setup --torch 2.11.0 --cudnn`")
    program = """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    x = torch.zeros(4, 12, 1024, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        y = torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
    answer = [torch.cuda.memory_allocated() - before, str(y.grad_fn)[1:16]]
    y.sum().backward()
    answer.append(x.grad.shape == x.shape)
    """
    kept = 2 * 4 * 12 * 1024 * 64 + 4 * 4 * 12 * 1024 + 2 * 512
    assert run(build, program) == [kept, "ScaledDotProduc", True]


def test_a_library_of_another_version_in_the_path_is_named(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a full installation's own libraries would be, which another library knows the place of."""
    (mine,) = build.libraries.glob("libcudart.so.*")
    other = tmp_path / mine.name
    shutil.copy(mine, other)
    shutil.copy(build.libraries / CORE, tmp_path / CORE)
    needs_it = tmp_path / "needs_it.so"
    place = ["-Wl,--no-as-needed", "-Wl,--disable-new-dtags", f"-Wl,-rpath,{tmp_path}"]
    words = [*find_compiler(), "-shared", *place, "-o", str(needs_it), str(other)]
    subprocess.run(words, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(needs_it))
    with pytest.raises(native.NativeEngineError, match="instead of their substitutes: ") as told:
        try_out(build, build.libraries)
    assert str(other) in str(told.value)


@pytest.mark.parametrize("name", ["libcudart.so.13", "libcudart.so.12", "libcublas.so.13", "my.so"])
def test_libraries_of_others_that_are_preloaded_change_nothing(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """They lack nearly all functions, and have 77 GPUs and one address for everything."""
    source = tmp_path / "fake.c"
    source.write_text(
        "int cudaGetDeviceCount(int *count) { *count = 77; return 0; }\n"
        "int cudaMalloc(void **address) { *address = (void *)4096; return 0; }\n"
        "int cublasCreate_v2(void **handle) { *handle = handle; return 0; }\n"
    )
    words = [*find_compiler(), "-shared", "-fPIC", f"-Wl,-soname,{name}"]
    subprocess.run([*words, "-o", tmp_path / name, source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / name))
    program = """
    x = torch.ones(64, 64, device="cuda")
    x @ x
    answer = [torch.cuda.device_count(), torch.cuda.max_memory_allocated()]
    """
    # Two matrices of 64 x 64 in float32, and cuBLAS's workspace on a T4.
    assert run(build, program, "T4") == [1, 2 * 64 * 64 * 4 + 8_519_680]


def test_libraries_that_pip_has_installed_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch loads those by their paths, before its own code finds the substitutes."""
    try:
        build = native.find()
    except native.NativeEngineError as error:
        pytest.skip(str(error))
    (cublas,) = build.libraries.glob("libcublasLt.so.*")
    folder = tmp_path / "nvidia" / f"cu{build.cuda_version // 1000}" / "lib"
    folder.mkdir(parents=True)
    shutil.copy(cublas, folder)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program = """
    import os
    from vramlab.native.report import Kind, calls_so_far
    torch.ones(1, device="cuda")
    paths = (line.split()[-1] for line in open("/proc/self/maps"))
    loaded = sorted({os.path.realpath(path) for path in paths if "libcublasLt" in path})
    answer = [loaded, [call.function for call in calls_so_far() if call.kind is Kind.FOREIGN]]
    """
    make_file(tmp_path / "calls")
    found = run(build, program, "T4", 1, **{ENVIRONMENT: str(tmp_path / "calls")})
    assert found == [[str(cublas.resolve())], []]


def test_recurrent_networks_take_what_the_h200_was_seen_to_take(build: Build) -> None:
    """T = 128, B = 32, H = 1024, L = 2: u = 16,777,216 B in float32, half of that in 16 bits.

    Workspace 12 u + 20 B H 4 + 512, reserve 11 u + 16 B H + 256; in 16 bits 13 and 11.
    """
    found = run(
        build,
        """
        from torch import nn
        from torch.cuda.memory import _record_memory_history, _snapshot

        def sizes(network, dtype):
            network = network.cuda().to(dtype)
            x = torch.zeros(128, 32, 1024, device="cuda", dtype=dtype)
            _record_memory_history("all", context=None)
            kept = network(x)
            trace = _snapshot()["device_traces"][0]
            _record_memory_history(None)
            return [event["size"] for event in trace if event["action"] == "alloc"][-2:]

        def weights(network):
            network.cuda()(torch.zeros(7, 2, 3, device="cuda"))[0].sum().backward()
            storages = {w.untyped_storage().data_ptr() for w in network.parameters()}
            starts = {w.storage_offset() for w in network.parameters()}
            total = next(network.parameters()).untyped_storage().nbytes()
            return [len(storages), len(starts), total]

        refused = ""
        try:
            sizes(nn.RNN(1024, 1024), torch.float32)
        except RuntimeError as error:
            refused = str(error)
        lstm = nn.LSTM(1024, 1024, 2, dropout=0.1)
        answer = {
            "float32": sizes(lstm, torch.float32),
            "bfloat16": sizes(lstm, torch.bfloat16),
            "LSTM": weights(nn.LSTM(3, 5, 2, bidirectional=True)),
            "GRU": weights(nn.GRU(3, 5, 2, bidirectional=True)),
            "refused": refused,
        }
        """,
    )
    assert "CUDNN_STATUS_NOT_SUPPORTED (vramlab's substitute" in found.pop("refused")
    # The second layer's input is the output of both directions; two biases.
    numbers = 2 * ((3 * 5 + 5 * 5 + 2 * 5) + (10 * 5 + 5 * 5 + 2 * 5))
    assert found == {
        "float32": [203_948_544, 185_073_920],
        "bfloat16": [110_363_136, 92_799_232],
        "LSTM": [1, 16, 4 * numbers * 4],
        "GRU": [1, 16, 3 * numbers * 4],
    }


def test_sorting_runs_on_a_gpu_whose_code_is_an_earlier_ones(build: Build) -> None:
    """PyTorch has no code for 8.9; CUB looks for tunings of what it has, which is 8.6's."""
    program = "answer = torch.rand(2**20, device='cuda').sort().values.shape[0]"
    assert run(build, program, gpu="RTX-4090") == 2**20


RANDOM_PROGRAMS = """
import random, torch

def blocks(seed):
    random_number, live, places = random.Random(seed), {}, []
    known = {}
    torch.cuda.empty_cache()
    other = torch.cuda.Stream()
    for step in range(400):
        if live and random_number.random() < 0.48:
            del live[random_number.choice(list(live))]
        else:
            size = random_number.choice([0.25, 0.25, 0.5, 1, 2, 3, 3, 4, 8, 12, 12, 12, 16, 24])
            stream = other if random_number.random() < 0.2 else torch.cuda.default_stream()
            with torch.cuda.stream(stream):
                live[step] = torch.empty(int(size * 2**20), dtype=torch.uint8, device="cuda")
            place = live[step].data_ptr()
            places.append(known.setdefault(place, len(known)))
        if random_number.random() < 0.004:
            torch.cuda.empty_cache()
    return places, torch.cuda.memory_reserved()

answer = [list(blocks(seed)) for seed in range(8)]
"""


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
@pytest.mark.parametrize("release", ["2.11.0", "2.12.1", "2.13.0"])
def test_both_engines_take_the_same_blocks(release: str, settings: str) -> None:
    """Of free blocks of one size, the tensors' earlier addresses show which was taken."""
    try:
        build = native.find(release)
    except native.NativeEngineError as error:
        pytest.skip(str(error))
    found = run(build, RANDOM_PROGRAMS, gpu="T4", PYTORCH_CUDA_ALLOC_CONF=settings)
    names: dict[str, Any] = {}
    with vramlab.VirtualGPU("T4", torch_version=release, alloc_conf=settings):
        exec(RANDOM_PROGRAMS, names)
        expected = [list(each) for each in names["answer"]]
    assert found == expected


THREADS = """
import threading, torch

def new(count):
    size = 12 * 2**20
    return [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(count)]

class Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        made.extend(new(3))
        return gradient

made = new(2)
x = torch.ones(1, device="cuda", requires_grad=True)
Keeping.apply(x).backward()
made.extend(new(2))
thread = threading.Thread(target=lambda: made.extend(new(3)))
thread.start()
thread.join()
made.extend(new(1))
names = {block.data_ptr(): name for name, block in enumerate(made)}
made.clear()
answer = [names[block.data_ptr()] for block in new(11)]
"""


@pytest.mark.parametrize("release", ["2.11.0", "2.12.1", "2.13.0"])
def test_blocks_of_other_threads_are_as_old_as_they_are(release: str) -> None:
    """Such as those of a backward pass, which has a thread: one counter has the ages of all."""
    try:
        build = native.find(release)
    except native.NativeEngineError as error:
        pytest.skip(str(error))
    found = run(build, THREADS, gpu="T4")
    names: dict[str, Any] = {}
    with vramlab.VirtualGPU("T4", torch_version=release):
        exec(THREADS, names)
    assert found == names["answer"]
    if release != "2.11.0":
        assert found == list(range(11))


BENCHMARK = """
import torch
from torch import nn

torch.backends.cudnn.benchmark = True
layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)]
model = nn.Sequential(*layers).cuda()
answer = []
for step in range(2):
    torch.cuda.reset_peak_memory_stats()
    model(torch.empty(32, 3, 224, 224, device="cuda")).sum().backward()
    answer.append([torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()])
"""


@pytest.mark.parametrize("release", ["2.13.0", "2.14.1", "2.15.0"])
@pytest.mark.parametrize("gpu", ["T4", "H200"])
def test_both_engines_try_the_same_plans_of_cudnn(
    gpu: str, release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first layers of VGG16, whose trials in the first step take most."""
    try:
        build = native.find(release)
    except native.NativeEngineError as error:
        pytest.skip(str(error))
    if build.cudnn is None:
        pytest.skip(f"convolutions need cuDNN: `vramlab native setup --torch {release} --cudnn`")
    names: dict[str, Any] = {}
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)  # as it is again afterwards
    with vramlab.VirtualGPU(gpu, torch_version=release):
        exec(BENCHMARK, names)
    assert run(build, BENCHMARK, gpu=gpu) == names["answer"]
    (first, _), (second, _) = names["answer"]
    assert first > second
