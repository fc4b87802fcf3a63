"""The substitute's NCCL: each rank alone, as if every other had sent the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Answer = Callable[[str], Any]

GROUP = """
nccl = ctypes.CDLL("libnccl.so.2")
comm = c_void_p()
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
call(nccl.ncclCommInitRank, byref(comm), 4, Id(), 1)
send, receive = malloc(8), malloc(32)
copy(send, (c_int * 2)(10, 11), 8)

def received(number):
    values = (c_int * number)()
    copy(values, receive, 4 * number)
    return list(values)
"""
INT32 = 2  # ncclDataType_t


def test_every_slot_of_a_gather_has_what_this_rank_sent(answer: Answer) -> None:
    program = f"call(nccl.ncclAllGather, send, receive, c_size_t(2), {INT32}, comm, None)"
    assert answer(f"{GROUP}\n{program}\nanswer = received(8)") == [10, 11] * 4


def test_a_split_group_fills_its_own_slot_alone(answer: Answer) -> None:
    """How many ranks name the same color, one of them does not know: 10, 11 are third."""
    program = f"""
split = c_void_p()
call(nccl.ncclCommSplit, comm, 0, 2, byref(split), None)
call(nccl.ncclAllGather, send, receive, c_size_t(2), {INT32}, split, None)
none = c_void_p()
call(nccl.ncclCommSplit, comm, -1, 2, byref(none), None)
answer = [received(8), none.value]
"""
    assert answer(GROUP + program) == [[0, 0, 0, 0, 10, 11, 0, 0], None]


def test_a_scattered_sum_is_this_ranks_part(answer: Answer) -> None:
    program = f"""
copy(receive, (c_int * 8)(*range(8)), 32)
call(nccl.ncclReduceScatter, receive, send, c_size_t(2), {INT32}, 0, comm, None)
values = (c_int * 2)()
copy(values, send, 8)
answer = list(values)
"""
    assert answer(GROUP + program) == [2, 3]


def test_a_group_with_a_broadcast_from_each_rank_is_a_gather(answer: Answer) -> None:
    """As PyTorch 2.15 gathers into a list. Other broadcasts of a group keep what was there."""
    program = f"""
def broadcast(root, bytes_before):
    place = c_void_p(receive.value + bytes_before)
    own = send if root == 1 else place
    call(nccl.ncclBroadcast, own, place, c_size_t(2), {INT32}, root, comm, None)

def grouped(roots):
    copy(receive, (c_int * 8)(*range(8)), 32)
    call(nccl.ncclGroupStart)
    for place, root in enumerate(roots):
        broadcast(root, 8 * place)
    call(nccl.ncclGroupEnd)
    return received(8)

answer = [grouped(range(4)), grouped([0, 1, 3])]
"""
    gathered, other = answer(GROUP + program)
    assert gathered == [10, 11] * 4
    assert other == [0, 1, 10, 11, 4, 5, 6, 7]
