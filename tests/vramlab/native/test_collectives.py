"""The substitute's NCCL: each rank alone, as if every other had sent the same."""

from __future__ import annotations

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


def test_every_slot_of_a_gather_has_what_this_rank_sent(answer) -> None:
    program = f"call(nccl.ncclAllGather, send, receive, c_size_t(2), {INT32}, comm, None)"
    assert answer(f"{GROUP}\n{program}\nanswer = received(8)") == [10, 11] * 4


def test_a_split_group_fills_its_own_slot_alone(answer) -> None:
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


def test_a_scattered_sum_is_this_ranks_part(answer) -> None:
    program = f"""
copy(receive, (c_int * 8)(*range(8)), 32)
call(nccl.ncclReduceScatter, receive, send, c_size_t(2), {INT32}, 0, comm, None)
values = (c_int * 2)()
copy(values, send, 8)
answer = list(values)
"""
    assert answer(GROUP + program) == [2, 3]
