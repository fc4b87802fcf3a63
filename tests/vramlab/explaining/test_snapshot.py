"""Snapshots of a GPU whose every byte is known: vramlab's allocator, driven by hand."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import vramlab
from vramlab import cli
from vramlab.allocator import AllocatorSettings, CachingAllocator, DeviceMemory, snapshot
from vramlab.errors import OutOfDeviceMemory
from vramlab.explaining.categories import Category, Phases, category_of
from vramlab.explaining.explanation import GPUExplanation, explain_data, explain_snapshot
from vramlab.explaining.timelines import choices
from vramlab.explaining.traces import Life, read_gpus
from vramlab.explaining.unpickling import UnreadableSnapshot, load_snapshot
from vramlab.explaining.whatif import Replay
from vramlab.units import GIB, KIB, MIB


def stack(line: int, name: str = "forward") -> list[dict[str, Any]]:
    """A stack as PyTorch writes it: a library's frame, then the program's."""
    library = "/env/lib/python3.11/site-packages/torch/nn/functional.py"
    return [
        {"filename": library, "line": 1, "name": "linear"},
        {"filename": "/home/me/train/model.py", "line": line, "name": name},
    ]


def recorded(
    program: Callable[[CachingAllocator], None], total_bytes: int, settings: str = ""
) -> dict[str, Any]:
    """Record what a program does with a GPU, which may run out of memory."""
    allocator = CachingAllocator(DeviceMemory(total_bytes), AllocatorSettings.parse(settings))
    allocator.record_history()
    with suppress(OutOfDeviceMemory):
        program(allocator)
    shown = snapshot([allocator])
    shown["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = settings
    return shown


def fragmented(allocator: CachingAllocator) -> None:
    """Blocks of 12 MiB whose every second one is freed: a request of 24 MiB finds no hole."""
    blocks = [allocator.malloc(12 * MIB, context=stack(7)) for _ in range(8)]
    for block in blocks[::2]:
        allocator.free(block, context=stack(8))
    allocator.malloc(80 * MIB, context=stack(9))


def test_a_failure_is_told_with_its_line_and_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps(recorded(fragmented, 100 * MIB))))
    (gpu,) = vramlab.explain(str(path)).gpus
    assert gpu.failed_line == "train/model.py:9 forward"
    assert gpu.request_bytes == 80 * MIB
    # Segments of 12 MiB each, the size of their request; four of eight are free, and were released.
    assert gpu.allocated_bytes == 4 * 12 * MIB
    assert (gpu.reserved_bytes, gpu.free_bytes) == (48 * MIB, 52 * MIB)
    assert gpu.capacity_bytes == 100 * MIB
    assert not gpu.is_fragmented
    assert [(share.name, share.size_bytes) for share in gpu.lines] == [
        ("train/model.py:7 forward", 48 * MIB)
    ]
    # What suffices: 48 MiB that stay, and 80 MiB.
    assert {each.smallest_bytes for each in gpu.outcomes if not each.settings} == {128 * MIB}


def explained(snapshot: dict[str, Any]) -> GPUExplanation:
    (gpu,) = explain_data(pickle.dumps(snapshot), "snapshot.pickle").gpus
    return gpu


def test_pieces_in_the_cache_and_on_the_gpu_are_added_up() -> None:
    def program(allocator: CachingAllocator) -> None:
        blocks = [allocator.malloc(6 * MIB, context=stack(7)) for _ in range(6)]
        for number in (0, 1, 3, 4):
            allocator.free(blocks[number], context=stack(8))
        allocator.malloc(30 * MIB, context=stack(9))

    # Two segments of 20 MiB, 12 of 40 MiB in use: 28 MiB are cached, 20 MiB free. 30 would fit.
    gpu = explained(recorded(program, 60 * MIB))
    assert (gpu.unused_bytes, gpu.free_bytes) == (28 * MIB, 20 * MIB)
    assert gpu.is_fragmented
    # A GPU of 41 MiB has 1 MiB free, and 28 + 1 < 30.
    assert not explained(recorded(program, 41 * MIB)).is_fragmented


def test_a_leak_is_seen_where_backward_has_python_frames() -> None:
    engine = "/env/lib/python3.11/site-packages/torch/autograd/graph.py"
    backward = [{"filename": engine, "line": 1, "name": "_engine_run_backward"}, *stack(20)]

    def program(allocator: CachingAllocator) -> None:
        for _ in range(10):
            allocator.malloc(2 * MIB, context=stack(9))
            allocator.free(allocator.malloc(MIB, context=backward), context=backward)

    (growth,) = explained(recorded(program, 1024 * MIB)).growing
    assert (growth.line, growth.size_bytes) == ("train/model.py:9 forward", 10 * 2 * MIB)


def growing_requests(allocator: CachingAllocator) -> None:
    """Each request is larger than what the last one left in the cache."""
    for size in (20, 30, 40, 50):
        allocator.free(allocator.malloc(size * MIB, context=stack(3)), context=stack(3))


def test_a_replay_reserves_what_was_recorded_and_less_with_expandable_segments() -> None:
    (gpu,) = read_gpus(recorded(growing_requests, 1024 * MIB))
    assert max(gpu.reserved_bytes) == (20 + 30 + 40 + 50) * MIB
    assert Replay(gpu).under("").reserved_bytes == 140 * MIB
    # Expandable segments grow by 20 MiB.
    assert Replay(gpu).under("expandable_segments:True").reserved_bytes == 60 * MIB
    assert Replay(gpu).smallest("", 140 * MIB) == 50 * MIB  # with the cache released before each


def test_releases_of_the_cache_are_counted() -> None:
    (gpu,) = read_gpus(recorded(growing_requests, 60 * MIB))
    # 20 + 30 MiB are cached when 40 MiB are asked for, and 40 MiB when 50 are.
    assert [(retry.request_bytes, retry.released_bytes) for retry in gpu.retries] == [
        (40 * MIB, 50 * MIB),
        (50 * MIB, 40 * MIB),
    ]
    assert gpu.capacity_bytes == 50 * MIB
    assert Replay(gpu).under("", 60 * MIB).retries == 2


def test_a_trace_that_begins_in_the_middle_is_walked_back() -> None:
    shown = recorded(fragmented, 1024 * MIB)
    (whole,) = read_gpus(shown)
    cut = 10
    shown["device_traces"][0] = shown["device_traces"][0][cut:]
    (rest,) = read_gpus(shown)
    assert rest.allocated_bytes == whole.allocated_bytes[cut:]
    assert rest.reserved_bytes == whole.reserved_bytes[cut:]


@pytest.mark.parametrize(
    ("life", "category"),
    [
        (Life(1, 0, -1, ()), Category.OLDER),
        (Life(1, 0, 5, ()), Category.UNKNOWN),
        (Life(1, 0, 5, stack(1)), Category.ACTIVATIONS),
        (Life(1, 0, 5, stack(1), freed=6, free_frames=stack(2)), Category.TEMPORARIES),
        (Life(1, 0, 5, stack(1), freed=9, free_frames=[{"filename": "??"}]), Category.ACTIVATIONS),
        (Life(1, 0, 5, [{"filename": "a.cpp", "name": "MulBackward0::apply"}]), Category.GRADIENTS),
        (Life(1, 0, 5, [{"filename": "x/torch/optim/adam.py", "name": "step"}]), Category.STATES),
        (
            Life(1, 0, 5, [{"filename": "x/torch/nn/modules/module.py", "name": "_apply"}]),
            Category.PARAMETERS,
        ),
    ],
)
def test_what_a_block_is_for(life: Life, category: Category) -> None:
    assert category_of(life, Phases(kept_from=20)) is category


def test_a_release_without_a_stack_of_its_own_is_told_by_the_allocation_before_it() -> None:
    life = Life(1, 0, 0, stack(1), freed=2, free_frames=stack(1))
    assert category_of(life, Phases(9, [False, True, True])) is Category.ACTIVATIONS
    assert category_of(life, Phases(9, [False, True, False])) is Category.TEMPORARIES


def test_what_an_error_frees_was_in_use() -> None:
    life = Life(1, 0, 5, stack(1), freed=9, free_frames=stack(1))
    assert category_of(life, Phases(kept_from=8)) is Category.ACTIVATIONS


class _Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("executed",)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (pickle.dumps(_Attack()), "builtins.print"),
        (pickle.dumps({"a": 1}), "without 'segments'"),
        (pickle.dumps({"segments": []})[:-3], "damaged or cut off"),
        (pickle.dumps(7), "no memory snapshot"),
    ],
)
def test_what_is_no_snapshot_is_refused_and_runs_nothing(
    data: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnreadableSnapshot, match=said):
        load_snapshot(data, "x.pickle")
    assert capsys.readouterr().out == ""


def test_the_verb_takes_a_file_and_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        shown = recorded(growing_requests, 1024 * MIB)
        (tmp_path / f"rank{rank}.pickle").write_bytes(pickle.dumps(shown))
    assert cli.main(["explain", "--json", str(tmp_path)]) == 0
    ranks = json.loads(capsys.readouterr().out)
    assert [each["gpus"][0]["peak_reserved_bytes"] for each in ranks] == [140 * MIB] * 2
    assert cli.main(["explain", str(tmp_path / "rank0.pickle")]) == 0
    assert capsys.readouterr().out.startswith("cuda:0")


@pytest.mark.parametrize(
    "change", [{"size": -5}, {"frames": ["x"]}, {"size": "x"}, {"addr": None, "frames": 3}]
)
def test_an_event_with_nonsense_names_the_file(change: dict[str, Any]) -> None:
    event = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": []} | change
    with pytest.raises(UnreadableSnapshot, match=r"^bad\.pickle: its .* memory snapshot"):
        explain_snapshot({"segments": [], "device_traces": [[event]]}, "bad.pickle")


def test_a_setting_of_a_newer_pytorch_is_left_out() -> None:
    settings = "from_the_future:7,roundup_power2_divisions:[256:1,>:2],max_split_size_mb:64"
    shown = recorded(growing_requests, 1024 * MIB)
    shown["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = settings
    (gpu,) = read_gpus(shown)
    assert gpu.settings == settings.removeprefix("from_the_future:7,")


LIMITS_BYTES = {"batch": 8 * GIB, "leak": 8 * GIB, "decode": 4 * GIB}


@pytest.mark.parametrize(("name", "limit"), LIMITS_BYTES.items())
def test_a_limit_below_the_gpus_memory_is_found_in_a_real_snapshot(name: str, limit: int) -> None:
    """An H100 of 79 GiB whose process was limited by set_per_process_memory_fraction."""
    folder = Path(__file__).parents[3] / "assets" / "recordings" / "h100" / "snapshots"
    (gpu,) = vramlab.explain(str(folder / f"{name}.pickle.xz")).gpus
    assert gpu.is_limited
    assert gpu.capacity_bytes is not None
    assert gpu.capacity_bytes <= limit < gpu.reserved_bytes + gpu.request_bytes
    assert gpu.is_replayed  # the recorded setting, under that limit, ends at the same request


def test_a_page_has_a_timeline_for_each_setting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page = tmp_path / "snapshot.pickle", tmp_path / "report.html"
    path.write_bytes(pickle.dumps(recorded(fragmented, 100 * MIB)))
    assert cli.main(["explain", "--html", str(page), str(path)]) == 0
    assert "ran out of memory" in capsys.readouterr().out
    html = page.read_text(encoding="utf-8")
    tried = len(choices())
    assert html.count("<template>") == html.count('class="vramlab-timeline"') == tried
    # 48 MiB stay in 96 MiB of segments, four of which are released for the failed request of 80.
    assert "cuda:0 as recorded: runs out of memory, peak reserved 96 MiB" in html
    assert "src=" not in html


def test_a_notebook_shows_tables_and_a_timeline(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(recorded(fragmented, 100 * MIB)))
    html = vramlab.explain(str(path))._repr_html_()
    assert html.count("<caption") == 4  # categories, lines, settings, changes
    assert html.count('class="vramlab-timeline"') == 1


def test_a_snapshot_without_events_says_what_to_do() -> None:
    block = {"size": 2 * MIB, "requested_size": 2 * MIB, "state": "active_allocated", "frames": []}
    segment = {"device": 0, "address": 0, "total_size": 20 * MIB, "stream": 0, "blocks": [block]}
    text = str(explain_snapshot({"segments": [segment], "device_traces": []}, "x"))
    assert "2.00 MiB allocated, 20.00 MiB reserved" in text
    assert "18.00 MiB (90%)" in text
    assert "_record_memory_history()" in text


@pytest.mark.parametrize(
    ("life", "category"),
    [
        # cuBLAS's workspace before Hopper, 4096 * 2 + 16 * 8 KiB; Hopper's is found by its frames.
        (Life((4096 * 2 + 16 * 8) * KIB, 0, 5, stack(1)), Category.WORKSPACES),
        (Life(32 * MIB, 0, 5, stack(1)), Category.ACTIVATIONS),
        (
            Life(32 * MIB, 0, 5, [{"filename": "", "name": "at::cuda::getNewWorkspace()"}]),
            Category.WORKSPACES,
        ),
        (
            Life(1, 0, 5, [{"filename": "", "name": "at::autocast::cached_cast(...)"}, *stack(1)]),
            Category.COPIES,
        ),
        # No module's: it is freed after the backward pass that ends before event 8.
        (Life(1, 0, 5, stack(1, "train"), freed=9), Category.OTHER),
        (Life(1, 0, 5, stack(1, "train"), freed=7), Category.TEMPORARIES),
        (Life(1, 0, 5, stack(1), freed=9), Category.TEMPORARIES),
    ],
)
def test_inputs_and_workspaces_are_no_activations(life: Life, category: Category) -> None:
    assert category_of(life, Phases(20, [False] * 20, [8])) is category


def test_blocks_of_private_pools_are_replayed_in_theirs() -> None:
    def program(allocator: CachingAllocator) -> None:
        allocator.malloc(12 * MIB, context=stack(1))
        allocator.begin_allocate_to_pool((0, 1), lambda stream: True)
        allocator.free(allocator.malloc(9 * MIB, context=stack(2)), context=stack(2))
        allocator.end_allocate_to_pool((0, 1))
        allocator.malloc(9 * MIB, context=stack(3))

    shown = recorded(program, GIB)
    (gpu,) = read_gpus(shown)
    # 12 MiB have a segment of their own; each request of 9 MiB gets one of 20, in its own pool.
    assert Replay(gpu).under("").reserved_bytes == max(gpu.reserved_bytes) == (12 + 20 + 20) * MIB
    for event in shown["device_traces"][0]:
        del event["pool_id"]  # as before 2.12, where the segment tells
    assert Replay(read_gpus(shown)[0]).under("").reserved_bytes == 52 * MIB


def test_a_failure_in_backward_leaves_gradients_of_activations() -> None:
    """No parameter has their size: they are temporary, though nothing freed them."""
    module = "/env/lib/python3.11/site-packages/torch/nn/modules/module.py"
    moved = [{"filename": module, "line": 1, "name": "_apply"}, *stack(1)]
    backward = [{"filename": "engine.cpp", "name": "MmBackward0::apply", "line": 1}]

    def program(allocator: CachingAllocator) -> None:
        allocator.malloc(12 * MIB, context=moved)
        allocator.malloc(24 * MIB, context=stack(2))
        allocator.malloc(12 * MIB, context=backward)
        allocator.malloc(24 * MIB, context=backward)
        allocator.malloc(48 * MIB, context=backward)

    found = explained(recorded(program, 100 * MIB))
    assert {share.name: share.size_bytes for share in found.categories} == {
        "parameters": 12 * MIB,
        "activations": 24 * MIB,
        "gradients": 12 * MIB,
        "temporaries": 24 * MIB,
    }


def test_a_thread_without_python_is_autograds_where_others_have_stacks() -> None:
    """On Windows PyTorch records no C++ frames, so that backward passes have no stacks."""

    def program(allocator: CachingAllocator) -> None:
        allocator.malloc(12 * MIB, context=stack(1))
        allocator.malloc(24 * MIB)

    shown = recorded(program, GIB)
    found = explained(shown)
    assert [(share.name, share.category) for share in found.lines] == [
        ("backward (a thread without Python)", "gradients"),
        ("train/model.py:1 forward", "activations"),
    ]
    for event in shown["device_traces"][0]:
        event.pop("frames", None)
    assert {(share.name, share.category) for share in explained(shown).lines} == {
        ("without a stack", "without a stack")
    }


def test_what_a_forward_pass_without_gradients_leaves_is_no_activation() -> None:
    def program(allocator: CachingAllocator, freed: int) -> None:
        blocks = [allocator.malloc(12 * MIB, context=stack(line)) for line in range(1, 11)]
        for block in blocks[:freed]:
            allocator.free(block, context=stack(11))
        allocator.malloc(120 * MIB, context=stack(12))

    # All lines but the last keep their block, then one of eleven and the last.
    trained = explained(recorded(lambda allocator: program(allocator, 0), GIB))
    evaluated = explained(recorded(lambda allocator: program(allocator, 9), GIB))
    assert {share.category for share in trained.lines} == {"activations"}
    assert {share.category for share in evaluated.lines} == {"other tensors"}
    assert not evaluated.remedies


def test_the_largest_lines_are_lines_of_the_trace() -> None:
    """What is older cannot be left out: nothing says who needs it."""

    def program(allocator: CachingAllocator) -> None:
        allocator.malloc(400 * MIB)
        for line in range(1, 5):
            allocator.malloc(line * 20 * MIB, context=stack(line))

    shown = recorded(program, GIB)
    del shown["device_traces"][0][:2]  # the segment of 400 MiB and its block
    found = explained(shown)
    assert found.lines[0].name == "before the trace"
    assert found.without_largest_bytes == (400 + 20) * MIB  # without 80, 60 and 40


def test_a_program_that_empties_the_cache_is_replayed_with_that() -> None:
    def program(allocator: CachingAllocator) -> None:
        allocator.free(allocator.malloc(40 * MIB, context=stack(1)), context=stack(1))
        allocator.empty_cache(context=[{"filename": "memory.py", "line": 1, "name": "empty_cache"}])
        allocator.malloc(60 * MIB, context=stack(2))

    shown = recorded(program, GIB)
    found = explained(shown)
    assert found.is_replayed
    assert (found.retries, found.capacity_bytes) == (0, None)
    assert found.outcomes[0].reserved_bytes == 60 * MIB
    for event in shown["device_traces"][0]:
        event.pop("frames", None)
    # Without stacks: 40 and 60 MiB are more than the trace ever reserves.
    assert explained(shown).retries == 1
