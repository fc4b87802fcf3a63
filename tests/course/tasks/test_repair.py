"""The harness of repairs: one run in which memory is limited and results are compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import vramlab
from vramlab.units import MIB
from vramlab_classroom.judge.task import NotFixed
from vramlab_course.tasks.gpus import GPU, allocate
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import on_host, require_close
from vramlab_course.tasks.work import Work, watching

T4 = GPU("T4", values=True)


def batch(index: int) -> torch.Tensor:
    return torch.full((30 * MIB // 4,), float(index), device="cuda")


def sums(load: Callable[[int], torch.Tensor], batches: int) -> torch.Tensor:
    """Holds a batch at a time: 30 MiB."""
    return torch.stack([load(index).sum() for index in range(batches)])


def sums_of_all(load: Callable[[int], torch.Tensor], batches: int) -> torch.Tensor:
    """Holds all batches."""
    loaded = []
    for index in range(batches):
        loaded.append(load(index))
    return torch.stack([each.sum() for each in loaded])


def collect(run: Run, returned: object) -> torch.Tensor:
    return on_host(returned, "No tensor on the GPU.")


def compare(run: Run, expected: torch.Tensor) -> None:
    if run.noted != list(range(run.case["batches"])):
        raise NotFixed(f"Loaded {run.noted}.")
    require_close(run.results, expected, "Other sums.")


REPAIR = Repair(
    gpu=T4,
    build=lambda run, batches: (run.noting(batch), batches),
    reference=sums,
    limit=room(20 * MIB),
    ran_out=lambda run: f"{run.ran_out} at batch {len(run.noted)} of {run.case['batches']}.",
    collect=collect,
    compare=compare,
)


def failure(repair: Callable[..., str], answer: Any, **case: Any) -> str:
    with pytest.raises(NotFixed) as raised:
        repair(answer, **case)
    return str(raised.value)


def test_our_own_program_passes_with_its_peak() -> None:
    # A batch, and small blocks for the sums. Reserved are a segment of 30 MiB, and one of 2 MiB for
    # small blocks: 30 + 2 + 20 = 52.
    assert REPAIR(sums, batches=3) == "peak 30.00 MiB, limit 52.00 MiB, ours 30.00 MiB"


def test_who_holds_more_is_asked_where_it_ended() -> None:
    message = (  # 30 + 30 > 52
        "With a limit of 52.00 MiB, of which 30.00 MiB are reserved, it runs out of memory at "
        "batch 2 of 3."
    )
    assert failure(REPAIR, sums_of_all, batches=3) == message
    assert failure(replace(REPAIR, limit=room(60 * MIB - 1)), sums_of_all, batches=3) == (
        "With a limit of 92.00 MiB, of which 90.00 MiB are reserved, it runs out of memory at "
        "batch 3 of 3."  # 3 x 30; the 2 MiB of small blocks are a byte too much
    )
    assert replace(REPAIR, limit=room(60 * MIB))(sums_of_all, batches=3).startswith("peak 90.00")


def test_the_room_counts_from_the_program_that_fits() -> None:
    roomy = replace(REPAIR, fits=sums_of_all, limit=room(0))
    assert roomy(sums, batches=3).endswith("limit 92.00 MiB, ours 90.00 MiB")  # 3 x 30 + 2


def test_what_is_allocated_can_have_a_limit_of_its_own() -> None:
    repair = replace(REPAIR, limit=room(60 * MIB), allocated_room_bytes=20 * MIB)
    assert repair(sums, batches=3) == "peak 30.00 MiB, limit 50.00 MiB, ours 30.00 MiB"
    # Three batches fit into 30 + 2 + 60 = 92 MiB, and take 90, of which 30 + 20 = 50 are allowed.
    assert failure(repair, sums_of_all, batches=3).startswith(
        "It runs to the end, but its peak is 90.00 MiB; the limit is 50.00 MiB"
    )


def test_tensors_of_the_program_are_there_when_it_is_asked() -> None:
    held: list[int] = []

    def ran_out(run: Run) -> str:
        held.append(torch.cuda.memory_allocated() // MIB)
        return run.said

    says = failure(replace(REPAIR, ran_out=ran_out), sums_of_all, batches=3)
    assert says.startswith("CUDA out of memory. Tried to allocate 30.00 MiB.")
    assert held == [30]


def test_the_error_is_not_forgotten() -> None:
    with pytest.raises(NotFixed) as raised:
        REPAIR(sums_of_all, batches=3)
    assert isinstance(raised.value.__cause__, torch.cuda.OutOfMemoryError)


def test_results_are_those_of_the_limited_run() -> None:
    """Who computes less when memory is short is found out: nothing is run again without a limit."""
    limits: list[float] = []

    def answer(load: Callable[[int], torch.Tensor], batches: int) -> torch.Tensor:
        limits.append(torch.cuda.get_per_process_memory_fraction())
        found = sums(load, batches)
        return found if limits[-1] == 1.0 else found * 2

    assert failure(REPAIR, answer, batches=2).startswith("Other sums.")
    assert len(limits) == 1


def test_every_run_has_inputs_of_its_own() -> None:
    def answer(weights: torch.Tensor) -> torch.Tensor:
        return weights.mul_(2)  # in place: the reference's weights stay as they were

    repair = Repair(
        gpu=T4,
        build=lambda run: [torch.ones(3, device="cuda")],
        reference=lambda weights: weights * 2,
        collect=collect,
        compare=lambda run, expected: require_close(run.results, expected, "Other weights."),
    )
    assert repair(answer) == ""  # memory is not limited, so there is nothing to report
    says = failure(repair, lambda weights: weights.mul_(3))
    assert says.startswith(
        "Other weights. 3 of 3 numbers are off, the worst at [0]: 3 instead of 2"
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda load, batches: None, "No tensor on the GPU."),
        (lambda load, batches: sums(load, batches).cpu(), "No tensor on the GPU."),
        (
            lambda load, batches: sums(load, batches)[1:],
            "Other sums. The shape is (1,) instead of (2,).",
        ),
        (
            # The second sum is 30 x 2**20 / 4 = 7864320; tolerated are 2 x 5e-6 of it.
            lambda load, batches: sums(load, batches) * 2,
            "Other sums. 1 of 2 numbers are off, the worst at [1]: 1.57286e+07 instead of "
            "7.86432e+06 (tolerance: 79).",
        ),
        (lambda load, batches: sums(load, batches - 1), "Loaded [0]."),
    ],
)
def test_what_is_not_the_same_says_so(answer: Any, message: str) -> None:
    assert failure(REPAIR, answer, batches=2) == message


def test_numbers_of_another_dtype_are_numbers() -> None:
    require_close(torch.ones(2, dtype=torch.float64), torch.ones(2), "Others.")
    with pytest.raises(
        NotFixed, match=r"^Others\. 1 of 2 numbers are off, the worst at \[1\]: nan"
    ):
        require_close(torch.tensor([1.0, float("nan")]), torch.ones(2), "Others.")
    with pytest.raises(NotFixed, match=r"^Others\. It is: 2 instead of 1"):
        require_close(torch.tensor(2.0), torch.tensor(1.0), "Others.")
    require_close(torch.tensor([torch.inf]), torch.tensor([torch.inf]), "Others.")


def test_the_largest_number_says_how_close_the_others_are() -> None:
    # 5e-6 x (1000 + 0) = 0.005 for the first; an infinite number tolerates nothing.
    require_close(torch.tensor([0.0049, 1000]), torch.tensor([0.0, 1000]), "Others.")
    for rest in (1000.0, torch.inf):
        with pytest.raises(NotFixed, match=r"^Others\. 1 of 3 numbers are off, the worst at \[0\]"):
            require_close(
                torch.tensor([0.0051, 1000, rest]), torch.tensor([0.0, 1000, rest]), "Others."
            )


def test_a_fault_of_the_task_is_none_of_the_answer() -> None:
    def too_much(load: object, batches: int) -> torch.Tensor:
        return allocate(16 * 2**30)  # more than the GPU has

    repair = Repair(gpu=GPU("T4"), build=REPAIR.build, limit=lambda own: 2 * MIB)
    message = "With a limit of 2.00 MiB, it runs out of memory."
    assert failure(repair, too_much, batches=1) == message
    with pytest.raises(torch.cuda.OutOfMemoryError):
        replace(repair, reference=too_much)(sums, batches=1)


def test_others_leave_what_the_driver_shows() -> None:
    seen: list[int] = []

    def answer(load: Callable[[int], torch.Tensor], batches: int) -> torch.Tensor:
        seen.append(torch.cuda.mem_get_info()[0] // MIB)
        return sums(load, batches)

    others = replace(REPAIR, limit=lambda own: 40 * MIB, by_others=True)
    assert others(answer, batches=2) == "peak 30.00 MiB, limit 40.00 MiB, ours 30.00 MiB"
    assert seen == [40]
    assert failure(others, sums_of_all, batches=2).endswith("at batch 2 of 2.")


def test_each_gpu_has_its_limit() -> None:
    """Our own program holds 20 MiB on the first GPU and 60 MiB on the second."""

    def program(first_mib: int, second_mib: int) -> Callable[[], list[torch.Tensor]]:
        return lambda: [
            torch.empty(mib * MIB, dtype=torch.uint8, device=f"cuda:{gpu}")
            for gpu, mib in enumerate((first_mib, second_mib))
        ]

    repair = Repair(
        gpu=GPU("T4", 2),
        reference=program(20, 60),
        limit=room(10 * MIB),
        ran_out=lambda run: f"{list(run.limits_bytes)}, {list(run.peaks_bytes)}",
        collect=lambda run, returned: None,
    )
    assert repair(program(30, 70)) == "peak 70.00 MiB, limit 70.00 MiB, ours 60.00 MiB"
    limits = [30 * MIB, 70 * MIB]
    assert failure(repair, program(32, 20)) == f"{limits}, [0, 0]"
    assert failure(repair, program(30, 72)) == f"{limits}, [{30 * MIB}, 0]"


def test_an_answer_can_be_made_a_program() -> None:
    """A number of batches at a time, which a program of ours is run with."""

    def in_groups(answer: object, batches: int) -> int:
        if type(answer) is not int:
            raise NotFixed(f"{answer!r} is no number.")
        return answer

    def call(run: Run) -> torch.Tensor:
        load, batches = run.inputs
        size = run.program
        groups = [range(first, first + size) for first in range(0, batches, size)]
        return torch.cat([sums_of_all(lambda i, g=group: load(g[i]), size) for group in groups])

    repair = replace(REPAIR, accept=in_groups, call=call, reference=1)
    assert repair(1, batches=2).startswith("peak 30.00 MiB")
    assert "runs out of memory" in failure(repair, 2, batches=2)
    assert failure(repair, "2", batches=2) == "'2' is no number."


def test_the_counters_may_be_reset() -> None:
    """An answer may measure the peak of a part: the judge measures that of the whole run."""

    def answer(load: Callable[[int], torch.Tensor], batches: int) -> torch.Tensor:
        found = sums(load, batches)
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() < MIB
        return found

    assert REPAIR(answer, batches=3) == "peak 30.00 MiB, limit 52.00 MiB, ours 30.00 MiB"


def test_the_limit_stays() -> None:
    def answer(load: Callable[[int], torch.Tensor], batches: int) -> torch.Tensor:
        torch.cuda.set_per_process_memory_fraction(1.0)
        found = sums_of_all(load, batches)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return found

    assert failure(REPAIR, answer, batches=3) == (  # 3 x 30 + 2
        "It reserved 92.00 MiB on GPU 0; the limit is 52.00 MiB. Do not change the limit."
    )


def test_work_on_the_host_does_not_count() -> None:
    def answer(load: Callable[[int], torch.Tensor], batches: int) -> torch.Tensor:
        return torch.stack([load(index).cpu().sum() for index in range(batches)]).cuda()

    # Each sum reads 30 x 2**20 / 4 = 7864320 numbers; the reference also stacks 3.
    assert failure(REPAIR, answer, batches=3) == (
        "It computes on the host: 2.4e+07 operations, although 2.4e+07 belong on the GPU and at "
        "most 1.2e+06 are allowed on the host. Which tensors were moved there?"
    )


def test_results_from_nowhere_do_not_count() -> None:
    def answer(load: Callable[[int], torch.Tensor], batches: int) -> torch.Tensor:
        return torch.stack([load(index)[0] * 30 * MIB / 4 for index in range(batches)])

    assert failure(REPAIR, answer, batches=3).startswith("It does 0% of the work: ")


def test_numbers_stay_in_tensors() -> None:
    def answer(load: Callable[[int], torch.Tensor], batches: int) -> torch.Tensor:
        found = sums(load, batches)
        load(0)[:5000].tolist()
        return found

    assert "It moves 5000 numbers" in failure(REPAIR, answer, batches=3)


READERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "float": lambda x: [float(each) for each in x],
    "int": lambda x: [int(each) for each in x],
    "bool": lambda x: [bool(each) for each in x],
    "item": lambda x: [each.item() for each in x],
    "equal": lambda x: [torch.equal(each, each) for each in x],
    "tolist": torch.Tensor.tolist,
    "numpy": lambda x: x.cpu().numpy(),
    "text": str,
    "format": lambda x: [f"{each:.8f}" for each in x],
    "apply_": lambda x: x.cpu().apply_(lambda each: each),
    "new": lambda x: x.cpu().new([0.5] * len(x)),
}


@pytest.mark.parametrize("way", READERS)
def test_numbers_are_counted_whatever_reads_them(way: str) -> None:
    work = Work()
    with T4.attached() as gpu:
        x = torch.ones(100, device="cuda")
        with watching(gpu, work), work.counting():
            READERS[way](x)
    assert work.numbers >= 100


def test_the_text_of_a_long_tensor_has_a_few_numbers() -> None:
    work = Work()
    with T4.attached() as gpu:
        x = torch.ones(100, 100, device="cuda")
        with watching(gpu, work), work.counting():
            assert str(x).count("1.") == 6 * 6
    assert work.numbers == 6 * 6  # three at each end of each dimension


def test_memory_that_nobody_has_filled_tells_nothing() -> None:
    work = Work()
    with T4.attached() as gpu, watching(gpu, work), work.counting():
        for device in ("cpu", "cuda"):
            x = torch.empty(3, device=device)
            assert all(each.isnan().all() for each in (x, x.new_empty(3), torch.empty_like(x)))


def test_what_was_given_keeps_its_memory() -> None:
    """The storages of batches cut to nothing, while names still hold them."""

    def answer(load: Callable[[int], torch.Tensor], batches: int) -> torch.Tensor:
        loaded, found = [], []
        for index in range(batches):
            loaded.append(load(index))
            found.append(loaded[-1].sum())
            loaded[-1].untyped_storage().resize_(0)
        return torch.stack(found)

    assert failure(REPAIR, answer, batches=3) == (
        "It changed a tensor that it was given: torch.float32 of shape (7864320,) with 30.00 MiB "
        "has become torch.float32 of shape (7864320,) with 0 bytes. Do not free its memory "
        "directly: delete the variables that reference it."
    )


def test_work_cannot_be_put_off() -> None:
    """A tensor of a class of its own could compute when it is taken to the host."""

    class Later(torch.Tensor):
        pass

    says = failure(REPAIR, lambda *given: sums(*given).as_subclass(Later), batches=3)
    assert says == "No tensor on the GPU. It is a Later, not a torch.Tensor."


def test_what_fails_in_our_own_calls_is_the_answers_doing() -> None:
    """A result that our code cannot use: the program is judged, and needs no review."""
    repair = replace(
        REPAIR, call=lambda run: run.program(*run.inputs) + torch.ones(1, device="cuda")
    )
    says = failure(repair, lambda *given: sums(*given).cpu(), batches=2)
    assert says.startswith(
        "The check cannot use what your program returns or leaves behind: RuntimeError: "
        "Expected all tensors to be on the same device"
    )


def test_a_program_may_measure_its_own_peak() -> None:
    repair = Repair(
        gpu=GPU("T4"),
        call=lambda run: run.program,
        reference=10 * MIB,
        limit=lambda own: 2 * own.results,
        peak=lambda run: run.results,
        ran_out=lambda run: f"{run.peak_bytes} > {run.limit_bytes}",
    )
    assert repair(20 * MIB) == "peak 20.00 MiB, limit 20.00 MiB, ours 10.00 MiB"
    assert failure(repair, 20 * MIB + 1) == f"{20 * MIB + 1} > {20 * MIB}"


def test_nothing_is_left_attached() -> None:
    REPAIR(sums, batches=1)
    failure(REPAIR, sums_of_all, batches=3)
    assert not torch.cuda.is_available() or not isinstance(vramlab.attached(), vramlab.VirtualGPU)
