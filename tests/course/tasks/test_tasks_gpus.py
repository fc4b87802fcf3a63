"""A task's GPU: the same on every machine, and with other processes where a task wants them."""

from __future__ import annotations

import pytest
import torch

from vramlab.units import MIB
from vramlab_classroom.judge.task import attached_for
from vramlab_course.tasks.gpus import GPU, NO_RESTS, allocate, device, leave
from vramlab_course.tasks.readings import growth_bytes


def rest_bytes() -> int:
    """What a tensor of 19.5 MiB leaves of its segment of 20 MiB, if the block keeps it."""
    return growth_bytes(lambda: allocate(39 * MIB // 2)) - 39 * MIB // 2


def test_it_is_what_it_says() -> None:
    with GPU("T4", 2, torch_version="2.11", alloc_conf=NO_RESTS).attached() as gpu:
        assert (gpu.name, torch.cuda.device_count()) == ("T4", 2)
        assert gpu.machine.torch_version == (2, 11)
        assert rest_bytes() == 0


def test_it_is_a_fresh_one_each_time() -> None:
    t4 = GPU("T4")
    for _ in range(2):
        with t4.attached():
            block = allocate(3 * MIB)
            assert torch.cuda.max_memory_allocated() == 3 * MIB
            del block


def test_settings_of_the_machine_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", NO_RESTS)
    with GPU("T4").attached():
        assert rest_bytes() == MIB // 2


def test_a_case_may_say_which() -> None:
    with attached_for(lambda gpu, size: GPU(gpu), {"gpu": "L4", "size": 3}):
        assert device().model.name == "L4"
    with attached_for(GPU("T4"), {"gpu": "L4"}):
        assert device().model.name == "T4"
        with attached_for(None, {}):
            assert device().model.name == "T4"


def test_others_leave_what_they_are_told() -> None:
    with GPU("T4", 2).attached():
        leave(100 * MIB, 1)
        assert torch.cuda.mem_get_info(1)[0] == 100 * MIB
        assert torch.cuda.mem_get_info(0)[0] > 100 * MIB
        leave(60 * MIB, 1)
        assert torch.cuda.mem_get_info(1)[0] == 60 * MIB
        assert device(1).memory.used_by_others_bytes > 40 * MIB
