"""CUDA graphs and memory pools: the portable engine against PyTorch's own code.

Each program runs on both engines. Compared are what it notes, the sequence of allocations, frees
and segments with their pools, streams and places, the segments that are left, and all statistics.

Needs `vramlab native setup --torch 2.13.0`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest
import torch

import vramlab
from vramlab import catalogue, native, torch_versions
from vramlab.gpu.torch_internals import installed_version
from vramlab.native.launch import environment

pytestmark = pytest.mark.long

BEFORE = """
import json, re, time, torch
from torch.cuda import CUDAGraph, MemPool, Stream, graph, use_mem_pool

torch.cuda.init()
torch.cuda.memory._record_memory_history("all", context=None, max_entries=10**6)
notes = []

def note(*values):
    notes.append([str(value) for value in values])

def memory():
    pools = {tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot()}
    stats = torch.cuda.memory_stats()
    names = "allocated_bytes.all.current", "reserved_bytes.all.current", "allocated_bytes.all.peak"
    note(sorted(pools), *(stats.get(name, 0) for name in names))

def attempt(function, *arguments):
    try:
        function(*arguments)
        note("done")
    except Exception as error:
        text = str(error).partition(" INTERNAL ASSERT FAILED")[0]
        # What else lies on the GPU, such as kernels' code, is not compared here.
        text = re.sub(r"of which .* memory in use", "...", text)
        note(type(error).__name__, text.partition("\\nSearch for")[0])

def capture(function, **how):
    captured = CUDAGraph()
    with graph(captured, **how):
        result = function()
    return captured, result

def linear_layers():
    layers = (torch.nn.Linear(1024, 1024, bias=False) for _ in range(4))
    model = torch.nn.Sequential(*layers).to("cuda").requires_grad_(False)
    return model, torch.zeros(8192, 1024, device="cuda")
"""

AFTER = """
def told():
    snapshot = torch.cuda.memory._snapshot()
    streams, places, events, segments = {}, {}, [], []
    for device, trace in enumerate(snapshot["device_traces"]):
        for event in trace:
            place = None
            if "addr" in event:
                place = places.setdefault(event["addr"], len(places))
            stream = streams.setdefault(event["stream"], len(streams))
            pool = list(event.get("pool_id", ()))
            events.append([device, event["action"], event["size"], stream, place, pool])
    for segment in snapshot["segments"]:
        names = ("device", "segment_type", "segment_pool_id", "total_size", "allocated_size",
                 "active_size", "requested_size", "is_expandable")
        stream = streams.setdefault(segment["stream"], len(streams))
        blocks = [[b["size"], b["requested_size"], b["state"]] for b in segment["blocks"]]
        segments.append([stream, blocks, *(segment[name] for name in names)])
    segments.sort(key=repr)
    stats = [torch.cuda.memory_stats(device) for device in range(torch.cuda.device_count())]
    return {"notes": notes, "events": events, "segments": segments, "stats": stats}

answer = json.dumps(told())
"""

PROGRAMS = {
    "graph by hand": """
        model, x = linear_layers()
        model(x); memory()
        captured, y = capture(lambda: model(x)); memory()
        captured.replay(); torch.cuda.synchronize(); memory()
        del y; torch.cuda.empty_cache(); memory()
        del captured; torch.cuda.empty_cache(); memory()
    """,
    "two graphs": """
        model, x = linear_layers()
        model(x)
        first, a = capture(lambda: model(x)); memory()
        second, b = capture(lambda: model(x[:4096])); memory()
        del first; torch.cuda.empty_cache(); memory()
        del a; torch.cuda.empty_cache(); memory()
        del second, b; torch.cuda.empty_cache(); memory()
    """,
    "two graphs, one pool": """
        model, x = linear_layers()
        model(x)
        first, a = capture(lambda: model(x)); memory()
        second, b = capture(lambda: model(x[:4096]), pool=first.pool()); memory()
        del first; torch.cuda.empty_cache(); memory()
        del a; torch.cuda.empty_cache(); memory()
        del second; torch.cuda.empty_cache(); memory()
        del b; torch.cuda.empty_cache(); memory()
    """,
    "training step": """
        layer = torch.nn.Linear(512, 2048), torch.nn.Dropout(0.1), torch.nn.Linear(2048, 10)
        model = torch.nn.Sequential(*layer).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
        x, target = torch.randn(256, 512, device="cuda"), torch.zeros(256, 10, device="cuda")
        def step():
            loss = torch.nn.functional.mse_loss(model(x), target)
            loss.backward()
            optimizer.step()
            return loss
        side = Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                step()
        torch.cuda.current_stream().wait_stream(side)
        optimizer.zero_grad(set_to_none=True); memory()
        captured, loss = capture(step); memory()
        for _ in range(3):
            x.copy_(torch.randn(256, 512, device="cuda"))
            captured.replay()
        memory()
    """,
    "graphed module": """
        wait = torch.cuda.synchronize
        def synchronize():  # the autograd engine's thread lets go of gradients a moment later
            time.sleep(0.3)
            wait()
        torch.cuda.synchronize = synchronize
        layers = torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 64)
        model = torch.nn.Sequential(*layers).cuda()
        x = torch.randn(128, 512, device="cuda", requires_grad=True)
        graphed = torch.cuda.make_graphed_callables(model, (x,)); memory()
        for _ in range(2):
            graphed(torch.randn(128, 512, device="cuda", requires_grad=True)).sum().backward()
            model.zero_grad()
        memory()
        model.eval()
        graphed(torch.randn(128, 512, device="cuda")); memory()
        torch.cuda.synchronize = wait
    """,
    "side stream": """
        x, side = torch.ones(2**20, device="cuda"), Stream()
        def work():
            main = torch.cuda.current_stream()
            a = x * 2
            side.wait_stream(main)
            with torch.cuda.stream(side):
                b = a * 3
                note(torch.cuda.is_current_stream_capturing())
                a.record_stream(side)
            c = x + 1
            main.wait_stream(side)
            del a
            d = x + 2
            return b + c
        captured, result = capture(work); memory()
        x = x + 1; memory()
        with torch.cuda.stream(side):
            note(torch.cuda.is_current_stream_capturing())
    """,
    "recorded before": """
        x, side = torch.ones(2**20, device="cuda"), Stream()
        a = torch.ones(2**20, device="cuda")
        a.record_stream(side)
        captured = CUDAGraph()
        with graph(captured):
            del a
            b = x + 1
        memory()
        c = torch.empty(1, device="cuda"); memory()
    """,
    "cuBLAS in a capture": """
        x = torch.ones(1000, 1000, device="cuda")
        captured, y = capture(lambda: x @ x); memory()
        z = x @ x; memory()
        other = CUDAGraph()
        with graph(other):
            w = x @ x
        del captured; memory()
        del other, w, y; torch.cuda.empty_cache(); memory()
        torch._C._cuda_clearCublasWorkspaces(); torch.cuda.empty_cache(); memory()
    """,
    "workspaces of a stream": """
        x, side = torch.ones(1000, 1000, device="cuda", requires_grad=True), Stream()
        with torch.cuda.stream(side):
            (x @ x).sum().backward()
        captured, y = capture(lambda: x.detach() + 1, stream=side); memory()
        captured.reset(); memory()
        captured.reset(); memory()
    """,
    "generators": """
        own = torch.Generator("cuda")
        x = torch.ones(1000, 1000, device="cuda")
        captured = CUDAGraph()
        captured.register_generator_state(own)
        with graph(captured):
            a = torch.nn.functional.dropout(x, 0.5)
            b = torch.rand(100, device="cuda", generator=own)
        captured.replay(); memory()
        other, c = capture(lambda: torch.rand(10, device="cuda")); memory()
        del captured; memory()
        del other; memory()
    """,
    "memory pool": """
        pool = MemPool()
        note(pool.id, pool.use_count())
        with use_mem_pool(pool):
            note(pool.use_count())
            a, b = torch.ones(2**20, device="cuda"), torch.ones(10, device="cuda")
        c = torch.ones(2**20, device="cuda"); memory()
        note([s["total_size"] for s in pool.snapshot()])
        del a; torch.cuda.empty_cache(); memory()
        with use_mem_pool(pool):
            d = torch.ones(2**20, device="cuda")
        del pool; memory()
        del d; torch.cuda.empty_cache(); memory()
        del b; torch.cuda.empty_cache(); memory()
    """,
    "nested pools": """
        one, two = MemPool(), MemPool()
        with use_mem_pool(one):
            a = torch.ones(2**20, device="cuda")
            with use_mem_pool(two):
                b = torch.ones(2**21, device="cuda")
                attempt(use_mem_pool(one).__enter__)
            c = torch.ones(2**20, device="cuda")
        note(one.use_count(), two.use_count()); memory()
        del a, b, c, one, two; memory()
    """,
    "pool and streams": """
        pool, side = MemPool(), Stream()
        with use_mem_pool(pool):
            with torch.cuda.stream(side):
                a = torch.ones(2**20, device="cuda")
            b = torch.ones(2**20, device="cuda")
            a.record_stream(torch.cuda.current_stream())
            del a
            c = torch.ones(2**20, device="cuda")
            torch.cuda.empty_cache()
        d = torch.ones(2**10, device="cuda"); memory()
    """,
    "pool and backward": """
        pool = MemPool()
        x = torch.ones(1000, 1000, device="cuda", requires_grad=True)
        with use_mem_pool(pool):
            (x @ x).sin().sum().backward()
        memory()
    """,
    "pool used on out of memory": """
        pool = MemPool(use_on_oom=True)
        with use_mem_pool(pool):
            a = torch.empty(8 * 2**30, dtype=torch.uint8, device="cuda")
        del a
        b = torch.empty(6 * 2**30, dtype=torch.uint8, device="cuda"); memory()
        c = torch.empty(3 * 2**30, dtype=torch.uint8, device="cuda"); memory()
        attempt(lambda: torch.empty(6 * 2**30, dtype=torch.uint8, device="cuda"))
        del c, pool; memory()
        attempt(lambda: torch.empty(9 * 2**30, dtype=torch.uint8, device="cuda"))
    """,
    "pool that splits nothing": """
        pool = MemPool(no_split=True)
        with use_mem_pool(pool):
            a, b = torch.empty(100, device="cuda"), torch.empty(2**20, device="cuda"); memory()
            del a
            c = torch.empty(200, device="cuda"); memory()
    """,
    "pool and graph": """
        pool, x = MemPool(), torch.ones(2**20, device="cuda")
        with use_mem_pool(pool):
            captured, y = capture(lambda: x + 1)
            z = x + 1
        other, w = capture(lambda: x + 1, pool=pool.id); memory()
        note(pool.use_count(), captured.pool(), other.pool(), torch.cuda.graph_pool_handle())
    """,
    "cache emptied in between": """
        x, y = torch.ones(2**22, device="cuda"), torch.ones(2**23, device="cuda")
        first, z = capture(lambda: x + 1)
        del z, first; memory()
        captured = CUDAGraph()
        with graph(captured):
            del y
            a = x + 1
            torch.cuda.empty_cache(); memory()
            b = a + 1
        torch.cuda.empty_cache(); memory()
    """,
    "out of memory in a capture": """
        x = torch.ones(2**20, device="cuda")
        cached = [torch.empty(4 * 2**30, dtype=torch.uint8, device="cuda")]
        held = torch.empty(6 * 2**30, dtype=torch.uint8, device="cuda")
        kept = []
        def work():
            cached.clear()
            kept.append(x + 1)
            torch.empty(6 * 2**30, dtype=torch.uint8, device="cuda")
        attempt(capture, work); memory()
        note(torch.cuda.is_current_stream_capturing())
        kept.clear(); torch.cuda.empty_cache(); memory()
    """,
    "expandable segments": """
        x = torch.ones(2**22, device="cuda")
        captured = CUDAGraph()
        with graph(captured):
            a = x + 1; s = torch.ones(10, device="cuda"); b = a + 1; del a; c = b * 2
        memory()
        captured.replay(); del b, s; torch.cuda.empty_cache(); memory()
        del captured; torch.cuda.empty_cache(); memory()
        del c; torch.cuda.empty_cache(); memory()
        pool = MemPool()
        with use_mem_pool(pool):
            y = torch.ones(2**22, device="cuda")
        del y, pool; memory()
    """,
    "limits": """
        torch.cuda.set_per_process_memory_fraction(0.5)
        x, y = torch.ones(2**28, device="cuda"), torch.ones(2**28, device="cuda")
        del y
        captured = CUDAGraph()
        with graph(captured):
            a, b = torch.ones(2**28, device="cuda"), torch.ones(2**28, device="cuda")
            del a
            c = torch.ones(2**27, device="cuda")
            attempt(lambda: [torch.ones(2**28, device="cuda") for _ in range(20)])
        memory()
    """,
    "waiting in a capture": """
        x = torch.ones(2**20, device="cuda")
        attempt(capture, lambda: (x + 1, torch.cuda.synchronize())); memory()
        note(torch.cuda.current_stream() == torch.cuda.default_stream())
        torch.cuda.set_stream(torch.cuda.default_stream())
        def later():
            a = x + 1
            attempt(torch.cuda.current_stream().synchronize)
            attempt(lambda: x + 2)
        attempt(capture, later); memory()
        torch.cuda.set_stream(torch.cuda.default_stream())
        attempt(capture, lambda: (x + 1).cpu())
        pinned = torch.ones(100).pin_memory()
        kept = capture(lambda: pinned.to("cuda", non_blocking=True)); memory()
    """,
    "wrong order": """
        x = torch.ones(2**20, device="cuda")
        captured, other = CUDAGraph(), CUDAGraph(keep_graph=True)
        attempt(captured.capture_begin)
        attempt(captured.replay)
        attempt(captured.pool)
        attempt(other.raw_cuda_graph)
        with torch.cuda.stream(Stream()):
            captured.capture_begin()
            attempt(CUDAGraph().capture_begin)
            with torch.cuda.stream(Stream()):
                attempt(captured.capture_end)
            y = x + 1
            captured.capture_end()
            attempt(captured.capture_begin)
        attempt(captured.instantiate)
        captured.reset()
        attempt(captured.replay)
        handle = torch.cuda.graph_pool_handle()
        first, z = capture(lambda: x + 1, pool=handle)
        del first
        attempt(capture, lambda: x + 1); memory()
    """,
    "efficient attention": """
        q = torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.float16)
        attention = torch.ops.aten._scaled_dot_product_efficient_attention
        eager = attention(q, q, q, None, True); memory()
        captured, kept = capture(lambda: attention(q, q, q, None, True)); memory()
    """,
    "two GPUs": """
        x = torch.ones(2**20, device="cuda:1")
        torch.cuda.set_device(1)
        captured, y = capture(lambda: (x + 1, torch.ones(2**20, device="cuda:0"))); memory()
        torch.cuda.set_device(0)
        captured.replay()
        pool = MemPool()
        with use_mem_pool(pool, device=1):
            a, b = torch.ones(2**20, device="cuda:0"), torch.ones(2**20, device="cuda:1")
        memory()
    """,
}

SETTINGS = {
    "expandable segments": "expandable_segments:True",
    "limits": "garbage_collection_threshold:0.4",
}


RELEASES = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")

ENDED_BY_2_11 = ("wrong order",)
"""PyTorch 2.11 ends the process when the graph goes whose capture could not begin."""

OTHER_PYTHON: dict[str, tuple[int, int]] = {
    "graphed module": (2, 14),
    "wrong order": (2, 14),
    "waiting in a capture": (2, 15),
}
"""Programs for which PyTorch's Python code (torch/cuda/graphs.py) is another since this version."""

ANY_ORDER = ("generators",)
"""A graph's generators are in a hash map by address (ATen/cuda/CUDAGraph.h), and end in its order.
"""

CHILDREN = """
import json, os, sys, tempfile, torch

answers = {}
for name, (settings, text) in json.load(sys.stdin).items():
    with tempfile.TemporaryFile("w+") as told:
        child = os.fork()
        if child == 0:
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = settings
            names = {}
            exec(text, names)
            told.write(names["answer"])
            told.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, name
        told.seek(0)
        answers[name] = json.load(told)
print(json.dumps(answers))
"""
"""Runs each program in a process of its own, which has PyTorch already."""


def _whole(name: str) -> str:
    return f"{BEFORE}\n{textwrap.dedent(PROGRAMS[name])}\n{AFTER}"


@pytest.fixture(scope="module", params=RELEASES)
def native_answers(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The release, and what each program says on the native engine."""
    if torch.__version__ < request.param.rpartition(".")[0]:
        pytest.skip("its own Python classes are not installed")
    try:
        build = native.find(request.param)
    except native.NativeEngineError as error:
        pytest.skip(str(error))
    programs = {
        name: (SETTINGS.get(name, ""), _whole(name))
        for name in PROGRAMS
        if request.param != "2.11.0" or name not in ENDED_BY_2_11
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN],
        env=environment(build, catalogue.find("T4"), 2),
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return request.param, json.loads(done.stdout.splitlines()[-1])


def _frees_sorted(events: list[list[Any]]) -> Iterator[list[Any]]:
    """Sort frees that follow each other."""
    for is_free, run in groupby(events, lambda event: event[1].startswith("free")):
        together = list(run)
        yield from sorted(together, key=str) if is_free else together


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_engines_do_the_same(name: str, native_answers: tuple[str, dict[str, Any]]) -> None:
    release, answers = native_answers
    if name not in answers:
        pytest.skip(f"PyTorch {release} ends the process")
    version = torch_versions.parse(release)
    if name in OTHER_PYTHON and version and version < OTHER_PYTHON[name] <= installed_version():
        pytest.skip(f"the Python code of PyTorch {torch.__version__} runs, which is another here")
    found = answers[name]
    names: dict[str, Any] = {}
    gpu = vramlab.VirtualGPU(
        "T4", 2, on_value="nan", torch_version=release, alloc_conf=SETTINGS.get(name, "")
    )
    with gpu:
        exec(_whole(name), names)
        expected = json.loads(names["answer"])
        names.clear()
    if release == "2.11.0":  # its traces have no pools
        expected["events"] = [[*event[:-1], []] for event in expected["events"]]
    if name in ANY_ORDER:
        found["events"] = list(_frees_sorted(found["events"]))
        expected["events"] = list(_frees_sorted(expected["events"]))
    for part in ("notes", "events", "segments"):
        assert found[part] == expected[part]
    for device, stats in enumerate(found["stats"]):
        if name in ANY_ORDER:  # how often what was freed has had a free neighbour
            stats = {key: value for key, value in stats.items() if "inactive_split" not in key}
        assert stats == {key: expected["stats"][device].get(key) for key in stats}
