"""The substitutes' streams, events and captures."""

from __future__ import annotations

import pytest

EVENTS = """
event = c_void_p()
call(cuda.cudaEventCreate, byref(event))
answer = [cuda.cudaEventQuery(event)]
call(cuda.cudaEventRecord, event, None)
answer.append(cuda.cudaEventQuery(event))
call(cuda.cudaStreamSynchronize, None)
answer.append(cuda.cudaEventQuery(event))
"""


def test_events_complete_at_once(answer) -> None:
    assert answer(EVENTS) == [0, 0, 0]


def test_late_events_complete_when_the_program_waits(answer) -> None:
    assert answer(EVENTS, streams="late") == [0, 600, 0]  # cudaErrorNotReady


def test_times_are_an_assumption_that_the_report_names(answer) -> None:
    assert (
        answer("""
        one, other, time = c_void_p(), c_void_p(), c_float()
        for event in (one, other):
            call(cuda.cudaEventCreate, byref(event))
            call(cuda.cudaEventRecord, event, None)
        call(cuda.cudaEventElapsedTime, byref(time), one, other)
        answer = time.value
    """)
        == 1.0
    )
    assert [call.function for call in answer.calls()] == ["cudaEventElapsedTime: always 1 ms"]


CAPTURE = """
def new(function):
    made = c_void_p()
    call(function, byref(made))
    return made

def capturing(stream):
    status, number = c_int(), c_uint64()
    function = cuda.cudaStreamGetCaptureInfo
    call(function, stream, byref(status), byref(number), None, None, None, None)
    return status.value, number.value
"""


def test_a_stream_that_waits_for_a_captured_event_joins_the_capture(answer) -> None:
    states, nodes, default = answer(
        CAPTURE
        + """
stream, other = new(cuda.cudaStreamCreate), new(cuda.cudaStreamCreate)
event = new(cuda.cudaEventCreate)
there, graph, count = malloc(MIB), c_void_p(), c_size_t()
states = [capturing(stream), capturing(other)]
call(cuda.cudaStreamBeginCapture, stream, 0)
call(cuda.cudaEventRecord, event, stream)
call(cuda.cudaStreamWaitEvent, other, event, 0)
states += [capturing(stream), capturing(other)]
call(cuda.cudaMemsetAsync, there, 5, c_size_t(1), other)
call(cuda.cudaStreamEndCapture, stream, byref(graph))
states += [capturing(stream), capturing(other)]
call(cuda.cudaGraphGetNodes, graph, None, byref(count))
ready = c_void_p()
call(cuda.cudaGraphInstantiateWithFlags, byref(ready), graph, c_uint64(0))
call(cuda.cudaGraphDestroy, graph)
call(cuda.cudaGraphLaunch, ready, stream)
call(cuda.cudaGraphExecDestroy, ready)
byte = ctypes.create_string_buffer(1)
copy(byte, there, 1)
answer = states, (count.value, byte.raw[0]), cuda.cudaStreamBeginCapture(None, 0)
"""
    )
    assert states == [[0, 0], [0, 0], [1, 1], [1, 1], [0, 0], [0, 0]]
    assert nodes == [1, 0]  # captured, and not done
    assert default == 900  # cudaErrorStreamCaptureUnsupported


def test_streams_know_what_they_were_made_with(answer) -> None:
    assert answer("""
        stream, priority, flags = c_void_p(), c_int(), c_uint()
        call(cuda.cudaStreamCreateWithPriority, byref(stream), 1, -9)
        call(cuda.cudaStreamGetPriority, stream, byref(priority))
        call(cuda.cudaStreamGetFlags, stream, byref(flags))
        call(cuda.cudaStreamDestroy, stream)
        answer = priority.value, flags.value, cuda.cudaStreamDestroy(c_void_p(99))
    """) == [-5, 1, 400]  # the highest priority there is; an invalid handle


def test_a_launch_that_fits_no_gpu_is_an_error(answer) -> None:
    assert answer("""
        class Size(ctypes.Structure):
            _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]
        def launch(grid, block):
            sizes = Size(*grid), Size(*block)
            return cuda.cudaLaunchKernel(c_void_p(1), *sizes, None, c_size_t(0), None)
        answer = [launch((1, 1, 1), (1024, 1, 1)), launch((1, 1, 1), (1025, 1, 1)),
                  launch((1, 65536, 1), (1, 1, 1)), launch((0, 1, 1), (1, 1, 1))]
    """) == [0, 9, 9, 9]  # cudaErrorInvalidConfiguration


@pytest.mark.parametrize(
    "wait",
    [
        "cudaEventQuery(event)",
        "cudaEventSynchronize(event)",
        "cudaStreamSynchronize(stream)",
        "cudaStreamQuery(other)",
        "cudaDeviceSynchronize()",
    ],
)
def test_a_capture_that_is_waited_for_is_lost(answer, wait: str) -> None:
    """900: not while a stream is captured; 901: it was, so nothing more can be captured there."""
    assert answer(
        CAPTURE
        + f"""
stream, other, third = (new(cuda.cudaStreamCreate) for _ in range(3))
event, there, graph = new(cuda.cudaEventCreate), malloc(MIB), c_void_p()
call(cuda.cudaStreamBeginCapture, stream, 0)
call(cuda.cudaEventRecord, event, stream)
call(cuda.cudaStreamWaitEvent, other, event, 0)
call(cuda.cudaStreamSynchronize, third)
answer = [cuda.{wait}, capturing(stream)[0], capturing(other)[0]]
answer += [cuda.cudaStreamEndCapture(stream, byref(graph)), graph.value, capturing(stream)[0]]
"""
    ) == [900, 2, 2, 901, None, 0]
