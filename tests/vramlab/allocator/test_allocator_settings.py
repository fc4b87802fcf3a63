"""PYTORCH_CUDA_ALLOC_CONF: every option, both spellings of a list, and clear errors."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from vramlab.allocator import AllocatorSettings
from vramlab.allocator.settings import ENVIRONMENT_VARIABLES, KNOWN_OPTIONS
from vramlab.errors import AllocatorConfigError
from vramlab.units import MIB


def test_the_defaults_are_pytorchs() -> None:
    settings = AllocatorSettings()
    assert settings.max_split_size_bytes is None
    assert settings.max_non_split_rounding_bytes == 20 * MIB
    assert settings.large_segment_bytes == 20 * MIB
    assert settings.garbage_collection_threshold == 0
    assert settings.per_process_memory_fraction == 1
    assert settings.active_roundup_divisions == ()
    assert not settings.expandable_segments


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("max_split_size_mb:128", "max_split_size_bytes", 128 * MIB),
        ("max_non_split_rounding_mb:64", "max_non_split_rounding_bytes", 64 * MIB),
        ("large_segment_size_mb:64", "large_segment_bytes", 64 * MIB),
        ("garbage_collection_threshold:0.8", "garbage_collection_threshold", 0.8),
        ("roundup_power2_divisions:8", "roundup_power2_divisions", (8,) * 16),
        ("expandable_segments:True", "expandable_segments", True),
        ("expandable_segments_reserve:0.5", "expandable_segments_reserve", 0.5),
        ("expandable_segments_reserve:1.5G", "expandable_segments_reserve", 1536 * MIB),
        (
            "expandable_segments_reserve_by_class:[kv:0.5]",
            "expandable_segments_reserve_by_class",
            "[kv:0.5]",
        ),
        ("per_process_memory_fraction:0.5", "per_process_memory_fraction", 0.5),
        ("throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom", True),
        ("backend:cudaMallocAsync", "backend", "cudaMallocAsync"),
        ("release_lock_on_cudamalloc:True", "release_lock_on_cudamalloc", True),
        ("release_lock_on_hipmalloc:True", "release_lock_on_cudamalloc", True),
        ("graph_capture_record_stream_reuse:True", "graph_capture_record_stream_reuse", True),
        ("pinned_use_cuda_host_register:True", "pinned_use_cuda_host_register", True),
        ("pinned_use_hip_host_register:True", "pinned_use_cuda_host_register", True),
        ("pinned_num_register_threads:8", "pinned_num_register_threads", 8),
        ("pinned_use_background_threads:True", "pinned_use_background_threads", True),
        ("pinned_reserve_segment_size_mb:32", "pinned_reserve_segment_bytes", 32 * MIB),
        ("pinned_free_catch_all:True", "pinned_free_catch_all", True),
        ("pinned_max_round_threshold_mb:1", "pinned_max_round_threshold_bytes", MIB),
        ("pinned_max_cached_size_mb:1", "pinned_max_cached_size_bytes", MIB),
    ],
)
def test_every_option_is_read(text: str, field: str, value: object) -> None:
    assert getattr(AllocatorSettings.parse(text), field) == value


def test_no_option_is_left_untested() -> None:
    mark = next(m for m in test_every_option_is_read.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert {text.partition(":")[0] for text, _, _ in mark.args[1]} == set(KNOWN_OPTIONS)


@pytest.mark.parametrize(
    ("text", "divisions"),
    # what libc10 of PyTorch 2.13 makes of the same texts (AcceleratorAllocatorConfig)
    [
        ("[256:1,512:2,1024:4,>:8]", (1,) * 9 + (2, 4) + (8,) * 5),
        ("[64:8,256:4,1024:4,>:1]", (8,) * 7 + (0, 4, 0, 4) + (1,) * 5),
        ("[512:2,4:8]", (2, 2, 8, 2, 2, 2, 2, 2, 2, 2) + (0,) * 6),
        ("[16:4,64:0]", (4,) * 5 + (0,) * 11),
        ("[262144:2]", (2,) * 16),
        ("[1:2]", (2,) + (0,) * 15),
        ("[>:8]", (0,) + (8,) * 15),
        ("[]", (0,) * 16),
    ],
)
def test_a_list_of_divisions_fills_the_intervals(text: str, divisions: tuple[int, ...]) -> None:
    settings = AllocatorSettings.parse(f"roundup_power2_divisions:{text}")
    assert settings.roundup_power2_divisions == divisions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "max_split_size:30",
            "unknown option 'max_split_size' in allocator settings 'max_split_size:30'; known are "
            + ", ".join(KNOWN_OPTIONS),
        ),
        (
            "max_split_size_mb=30",
            "cannot read 'max_split_size_mb=30' in allocator settings 'max_split_size_mb=30'; "
            "write key:value pairs with commas between them, such as "
            "'expandable_segments:True,max_split_size_mb:128'",
        ),
        (
            "max_split_size_mb:19",
            "max_split_size_mb cannot be '19': it must be at least large_segment_size_mb, 20 MiB",
        ),
        (
            "expandable_segments:true",
            "expandable_segments cannot be 'true': it must be True or False",
        ),
        (
            "roundup_power2_divisions:[256:3]",
            "roundup_power2_divisions cannot be '[256:3]': it must be made of divisions that are 0 "
            "or powers of two, not 3",
        ),
    ],
)
def test_an_error_says_what_is_wrong_and_what_would_do(text: str, message: str) -> None:
    with pytest.raises(AllocatorConfigError) as caught:
        AllocatorSettings.parse(text)
    assert str(caught.value) == message


REFUSED_HERE_ONLY = [
    "max_split_size_mb:-1",  # PyTorch: no limit
    "max_split_size_mb:30.7",  # PyTorch: 30
    "max_split_size_mb:30,,expandable_segments:True",
    "expandable_segments_reserve:0",  # PyTorch 2.15 warns of these two, and ignores them
    "expandable_segments_reserve:40MB",
    "backend:managed",  # the CUDA part of PyTorch refuses these four, which a CPU build lacks
    "per_process_memory_fraction:2",
    "pinned_num_register_threads:3",
    "pinned_reserve_segment_size_mb:0",
]

REFUSED = [
    "max_split_size_mb",
    "max_split_size_mb:",
    "max_split_size_mb:abc",
    "max_split_size_mb:19",
    "max_split_size_mb:30 garbage_collection_threshold:0.5",
    "large_segment_size_mb:10",
    "large_segment_size_mb:64,max_split_size_mb:32",
    "max_non_split_rounding_mb:5",
    "garbage_collection_threshold:0",
    "garbage_collection_threshold:1",
    "garbage_collection_threshold:high",
    "roundup_power2_divisions:0",
    "roundup_power2_divisions:3",
    "roundup_power2_divisions:[300:2]",
    "roundup_power2_divisions:[256:3]",
    "roundup_power2_divisions:[256:1",
    "expandable_segments:1",
    "expandable_segments:[True]",
    "pinned_use_background_threads:yes",
    ",",
]

ACCEPTED = [
    "",
    "max_split_size_mb:20",
    "large_segment_size_mb:12,max_split_size_mb:12",
    "garbage_collection_threshold:0.999",
    "roundup_power2_divisions:1",
    "roundup_power2_divisions:[256:0,>:16]",
    "expandable_segments:False",
]

ACCEPTED_SINCE = {
    "pinned_max_round_threshold_mb:0": "2.13",
    "pinned_max_cached_size_mb:0": "2.13",
    "expandable_segments_reserve:40G": "2.15",
    "expandable_segments_reserve_by_class:[kv:0.5]": "2.15",
}


@pytest.mark.parametrize("text", [*REFUSED, *REFUSED_HERE_ONLY])
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(AllocatorConfigError):
        AllocatorSettings.parse(text)


@pytest.fixture
def torch_settings() -> Iterator[object]:
    """PyTorch's own parser (it works without a GPU), put back to its defaults afterwards."""
    torch = pytest.importorskip("torch")
    yield torch._C._accelerator_setAllocatorSettings
    torch._C._accelerator_setAllocatorSettings("large_segment_size_mb:20,expandable_segments:False")


@pytest.mark.parametrize("text", REFUSED)
def test_pytorch_refuses_the_same(text: str, torch_settings: object) -> None:
    assert callable(torch_settings)
    torch_settings("large_segment_size_mb:20")
    with pytest.raises((ValueError, RuntimeError)):
        torch_settings(text)


@pytest.mark.parametrize("text", [*ACCEPTED, *ACCEPTED_SINCE])
def test_pytorch_accepts_the_same(text: str, torch_settings: object) -> None:
    torch = pytest.importorskip("torch")
    if torch.__version__ < torch.torch_version.TorchVersion(ACCEPTED_SINCE.get(text, "0")):
        pytest.skip(f"PyTorch {torch.__version__} does not know it yet")
    assert callable(torch_settings)
    torch_settings(text)
    assert AllocatorSettings.parse(text).text == text


def test_changing_settings_resets_what_pytorch_resets() -> None:
    first = AllocatorSettings.parse(
        "large_segment_size_mb:30,max_split_size_mb:50,garbage_collection_threshold:0.5,"
        "roundup_power2_divisions:4,expandable_segments:True,per_process_memory_fraction:0.5"
    )
    second = first.updated("max_split_size_mb:40")
    assert second == AllocatorSettings(
        text="max_split_size_mb:40",
        max_split_size_bytes=40 * MIB,
        large_segment_bytes=30 * MIB,  # these stay
        max_non_split_rounding_bytes=30 * MIB,
        expandable_segments=True,
        per_process_memory_fraction=0.5,
    )


EMPTY_OR_SET = (None, "", "max_split_size_mb:%d")

ENVIRONMENTS = [
    {
        name: text % size_mib if "%" in text else text
        for name, text, size_mib in zip(ENVIRONMENT_VARIABLES, texts, (40, 50, 60), strict=True)
        if text is not None
    }
    for texts in itertools.product(EMPTY_OR_SET, repeat=3)
]
"""Each variable unset, empty or set, and each to something else: 27 environments."""


def test_environment_variables_are_read_in_pytorchs_order() -> None:
    """PyTorch reads them once, so each environment is asked in a fork that has not yet."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch._C, "_accelerator_getAllocatorSettings"):
        pytest.skip(f"PyTorch {torch.__version__} does not say what it has read")
    asked = (
        "import ast, os, sys, torch\n"
        "for environment in ast.literal_eval(sys.argv[1]):\n"
        "    if os.fork() == 0:\n"
        "        os.environ.update(environment)\n"
        "        print(torch._C._accelerator_getAllocatorSettings(), flush=True)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
    )
    others = {name: v for name, v in os.environ.items() if name not in ENVIRONMENT_VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", asked, repr(ENVIRONMENTS)],
        env=others,
        capture_output=True,
        text=True,
        check=True,
    )
    read = [AllocatorSettings.from_environment(each).text for each in ENVIRONMENTS]
    assert done.stdout.splitlines() == read
    assert len(set(read)) == 4  # none, or one of the three
