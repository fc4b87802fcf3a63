"""`torch.cuda.Stream` and `torch.cuda.Event` of a virtual GPU.

No time passes: work is done when it is asked for, and events have happened once recorded. What a
stream does change is memory: blocks belong to the stream they were allocated for.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from vramlab.errors import UnsupportedOnVirtualGPU
from vramlab.gpu.core.captures import Capture
from vramlab.gpu.core.machine import DEFAULT_STREAM, Machine
from vramlab.gpu.torch_internals import get_device_index

_DEVICE_TYPE_CUDA = 1  # c10::DeviceType::CUDA in torch/headeronly/core/DeviceType.h


def stream_and_event_types(machine: Machine) -> tuple[type, type]:
    """Make the `Stream` and `Event` classes of one machine, with torch.cuda's interface."""

    class Stream(torch.Stream):
        """A queue of work on one GPU; 0 is the default stream."""

        priority: int
        _outer: list[tuple[int, int]]

        def __new__(
            cls,
            device: Any = None,
            priority: int = 0,
            *,
            stream_id: int | None = None,
            device_index: int | None = None,
            device_type: int = _DEVICE_TYPE_CUDA,
            stream_ptr: int | None = None,
        ) -> Stream:
            if stream_ptr is not None:
                raise UnsupportedOnVirtualGPU(
                    f"stream_ptr={stream_ptr:#x}: a virtual GPU has no streams of other "
                    "libraries. Make one with torch.cuda.Stream()."
                )
            if device_index is None:
                device_index = get_device_index(device, optional=True)
            machine.device(device_index)
            made: Stream = super().__new__(
                cls,
                stream_id=machine.new_stream() if stream_id is None else stream_id,
                device_index=device_index,
                device_type=device_type,
            )
            made.priority = priority
            made._outer = []
            return made

        @property
        def cuda_stream(self) -> int:
            """The handle that other libraries would use; here the id."""
            return self.stream_id

        @property
        def _as_parameter_(self) -> ctypes.c_void_p:
            return ctypes.c_void_p(self.stream_id)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            """Lowest and highest priority."""
            return 0, -5

        def query(self) -> bool:
            """Return whether the stream's work is done: always."""
            self.synchronize()
            return True

        def is_capturing(self) -> bool:
            """Return whether the stream is captured into a CUDA graph."""
            return machine.captures.of(self.stream_id) is not None

        def synchronize(self) -> None:
            """Wait for the stream's work: it is done, if it is not captured."""
            machine.captures.wait_for(machine.captures.of(self.stream_id))

        def record_event(self, event: Any = None) -> Any:
            """Record `event`, or a new one, in this stream."""
            event = Event() if event is None else event
            event.record(self)
            return event

        def wait_event(self, event: Any) -> None:
            """Make later work wait for `event`: it has happened."""
            event.wait(self)

        def wait_stream(self, stream: Any) -> None:
            """Make later work wait for the work of `stream`: it is done."""
            self.wait_event(stream.record_event())

        def __enter__(self) -> Stream:
            self._outer.append(
                (machine.current_device(), machine.current_stream(self.device_index))
            )
            machine.set_device(self.device_index)
            machine.set_stream(self.device_index, self.stream_id)
            return self

        def __exit__(self, *exception: object) -> None:
            device, stream = self._outer.pop()
            machine.set_stream(self.device_index, stream)
            machine.set_device(device)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and (self.stream_id, self.device_index) == (
                other.stream_id,
                other.device_index,
            )

        def __hash__(self) -> int:
            return hash((self.stream_id, self.device_index))

        def __repr__(self) -> str:
            return f"<torch.cuda.Stream device={self.device} cuda_stream={self.stream_id:#x}>"

    class ExternalStream(Stream):
        """A stream of another library: there are none on a virtual GPU."""

        def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> Any:
            return super().__new__(cls, device, stream_ptr=stream_ptr, **kwargs)

    class Event:
        """A marker in a stream. It has happened as soon as it is recorded."""

        def __init__(
            self,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,
        ) -> None:
            self._enable_timing = enable_timing
            self._recorded = False
            self._capture: Capture | None = None
            self.device: torch.device | None = None

        def record(self, stream: Any = None) -> None:
            """Record in `stream`, by default the current one."""
            stream = torch.cuda.current_stream() if stream is None else stream
            self.device = stream.device
            self._recorded = True
            self._capture = machine.captures.of(stream.stream_id)

        def wait(self, stream: Any = None) -> None:
            """Make later work of `stream` wait; it joins the capture that the event is of."""
            if self._capture is not None:
                stream = torch.cuda.current_stream() if stream is None else stream
                machine.captures.join(stream.stream_id, self._capture)

        def query(self) -> bool:
            """Return whether the event has happened: always."""
            self.synchronize()
            return True

        def synchronize(self) -> None:
            """Wait for the event: it has happened, if it is not of a capture."""
            machine.captures.wait_for(self._capture)

        def elapsed_time(self, end_event: Any) -> float:
            """Milliseconds between two events: 0.0, because no time passes on a virtual GPU.

            Raises:
                ValueError: an event has no timing, or is not recorded; torch's words.
            """
            if not (self._enable_timing and end_event._enable_timing):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if not (self._recorded and end_event._recorded):
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            return 0.0

        def __repr__(self) -> str:
            return (
                "<torch.cuda.Event recorded>"
                if self._recorded
                else "<torch.cuda.Event uninitialized>"
            )

    Stream.ExternalStream = ExternalStream  # type: ignore[attr-defined]
    return Stream, Event


def current_stream_data(machine: Machine, device: int) -> tuple[int, int, int]:
    """Describe the current stream as C++ does: stream id, device index, device type."""
    return machine.current_stream(device), device, _DEVICE_TYPE_CUDA


def default_stream_data(device: int) -> tuple[int, int, int]:
    """Describe the default stream in the same form."""
    return DEFAULT_STREAM, device, _DEVICE_TYPE_CUDA
