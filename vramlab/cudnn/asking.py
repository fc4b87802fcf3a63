"""Ask cuDNN's own library for workspaces, in a process that does nothing else.

    python -I -S asking.py PATH/libcudnn_graph.so.9

reads a JSON object a line from stdin, and writes a JSON array a line to stdout:

    {"gpu": "...", "questions": [[...], ...]}  ->  [[206110867, 0], [0], [], "cuDNN 9...", ...]

`gpu` is the description that cuDNN takes instead of a GPU's handle ("deviceless ahead-of-time
compilation", since 9.8), see `description.py`; a question is `Convolution.as_question`. An answer
has the workspace of each plan in bytes, best plan first (none: cuDNN has no engine for it), or is
the text of an error. The first line that it writes is cuDNN's version.

Nothing is executed and no GPU is needed. The process imports the standard library alone, so that it
starts in 30 ms and is no program of the user's to anybody; and what goes wrong in it ends no other.

Source: NVIDIA's cuDNN backend API reference, for the attributes; for what PyTorch asks and how it
chooses, aten/src/ATen/native/cudnn/Conv_v8.cpp, PyTorch 2.13.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_double, c_float, c_int32, c_int64, c_size_t, c_void_p
from typing import Any

# cudnnBackendDescriptorType_t
_CONVOLUTION, _ENGINE, _CONFIGURATION, _HEURISTICS, _PLAN = 1, 2, 3, 4, 5
_GRAPH, _TENSOR, _GPU = 15, 17, 38
# cudnnBackendAttributeType_t
_DATA_TYPE, _INT64, _FLOAT, _DOUBLE, _CONVOLUTION_MODE, _HEURISTICS_MODE = 1, 3, 4, 5, 7, 8
_NOTES, _DESCRIPTOR, _BEHAVIOR_NOTES, _CHARACTERS = 11, 15, 19, 24
# cudnnBackendAttributeName_t
_COMPUTES_IN, _MODE, _DILATIONS, _STRIDES, _PADDINGS_AFTER, _PADDINGS, _DIMENSIONS = range(100, 107)
_HEURISTICS_IN, _HEURISTICS_OF, _HEURISTICS_RESULTS, _HEURISTICS_GPU = 200, 201, 202, 204
_ENGINE_OF_CONFIGURATION, _CONFIGURATION_WORKSPACE = 300, 303
_PLAN_OF, _PLAN_WORKSPACE, _PLAN_GPU = 401, 402, 407
_OPERATIONS, _NOTES_OF_ENGINE, _BEHAVIOR_OF_ENGINE, _GPU_JSON = 801, 1303, 1305, 2702
_ALIGNMENT, _TENSOR_DATA_TYPE, _TENSOR_SIZES, _TENSOR_STRIDES, _TENSOR_ID = 900, 901, 902, 903, 906

# An operation's descriptor, and its attributes: alpha, beta, convolution, weight, input, output.
_OPERATIONS_BY_NAME = {
    "forward": (10, range(700, 706)),
    "weight": (11, range(712, 718)),
    "input": (12, range(706, 712)),
}
_DATA_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 9}
_CROSS_CORRELATION = 1
_INSTANT, _FALLBACK = 0, 2  # cudnnBackendHeurMode_t
_TENSOR_CORE, _DOWN_CONVERTS_INPUTS, _NONDETERMINISTIC = 0, 1, 4  # cudnnBackendNumericalNote_t
_COMPILES_AT_RUN_TIME = 0  # cudnnBackendBehaviorNote_t
_MOST_CONFIGURATIONS = 512


class CudnnRefused(Exception):
    """A call of cuDNN's answered with another status than success."""


class Cudnn:
    """cuDNN's library, and the descriptors that a question makes."""

    def __init__(self, path: str) -> None:
        self._library = library = ctypes.CDLL(path)
        library.cudnnGetVersion.restype = c_size_t
        library.cudnnBackendSetAttribute.argtypes = [c_void_p, c_int32, c_int32, c_int64, c_void_p]
        library.cudnnBackendGetAttribute.argtypes = [
            *library.cudnnBackendSetAttribute.argtypes[:4],
            ctypes.POINTER(c_int64),
            c_void_p,
        ]
        self.version = int(library.cudnnGetVersion())
        self._made: list[c_void_p] = []

    @contextmanager
    def descriptors(self) -> Iterator[None]:
        """Destroy what is made inside."""
        before = len(self._made)
        try:
            yield
        finally:
            while len(self._made) > before:
                self._library.cudnnBackendDestroyDescriptor(self._made.pop())

    def new(self, kind: int) -> c_void_p:
        """Make a descriptor."""
        descriptor = c_void_p()
        self._check("create", self._library.cudnnBackendCreateDescriptor(kind, byref(descriptor)))
        self._made.append(descriptor)
        return descriptor

    def put(self, descriptor: c_void_p, attribute: int, kind: int, values: Any) -> None:
        """Set an attribute to an array of ctypes."""
        status = self._library.cudnnBackendSetAttribute(
            descriptor, attribute, kind, len(values), ctypes.cast(values, c_void_p)
        )
        self._check(f"attribute {attribute}", status)

    def finalize(self, descriptor: c_void_p) -> c_void_p:
        """Finish a descriptor; it is its own result."""
        self._check("finalize", self._library.cudnnBackendFinalize(descriptor))
        return descriptor

    def get(self, descriptor: c_void_p, attribute: int, kind: int, room: Any) -> int:
        """Read an attribute into an array of ctypes, or into none; how many there are."""
        count = c_int64()
        place = ctypes.cast(room, c_void_p) if room else None
        status = self._library.cudnnBackendGetAttribute(
            descriptor, attribute, kind, len(room), byref(count), place
        )
        self._check(f"attribute {attribute}", status)
        return count.value

    def _check(self, what: str, status: int) -> None:
        if status:
            raise CudnnRefused(f"cuDNN {self.version}: {what}: status {status}")

    # ---- what a question consists of ----

    def gpu(self, description: str) -> c_void_p:
        """Describe a GPU; the descriptor stays."""
        descriptor = self.new(_GPU)
        text = description.encode()
        self.put(descriptor, _GPU_JSON, _CHARACTERS, ctypes.create_string_buffer(text, len(text)))
        self.finalize(descriptor)
        self._made.remove(descriptor)
        return descriptor

    def _tensor(
        self, name: str, dtype: str, sizes: Sequence[int], strides: Sequence[int], alignment: int
    ) -> c_void_p:
        descriptor = self.new(_TENSOR)
        self.put(descriptor, _TENSOR_DATA_TYPE, _DATA_TYPE, _int32(_DATA_TYPES[dtype]))
        self.put(descriptor, _TENSOR_SIZES, _INT64, _int64(*sizes))
        self.put(descriptor, _TENSOR_STRIDES, _INT64, _int64(*strides))
        self.put(descriptor, _TENSOR_ID, _INT64, _int64(ord(name)))
        self.put(descriptor, _ALIGNMENT, _INT64, _int64(alignment))
        return self.finalize(descriptor)

    def _graph(self, question: Sequence[Any]) -> c_void_p:
        operation, dtype, *tensors, paddings, strides, dilations = question[:8]
        x, w, y = (
            self._tensor(name, dtype, *tensor) for name, tensor in zip("xwy", tensors, strict=True)
        )
        convolution = self.new(_CONVOLUTION)
        computes_in = dtype if dtype == "f64" else "f32"
        self.put(convolution, _COMPUTES_IN, _DATA_TYPE, _int32(_DATA_TYPES[computes_in]))
        self.put(convolution, _MODE, _CONVOLUTION_MODE, _int32(_CROSS_CORRELATION))
        self.put(convolution, _DIMENSIONS, _INT64, _int64(len(strides)))
        for attribute, values in (
            (_STRIDES, strides),
            (_PADDINGS, paddings),
            (_PADDINGS_AFTER, paddings),
            (_DILATIONS, dilations),
        ):
            self.put(convolution, attribute, _INT64, _int64(*values))
        self.finalize(convolution)
        kind, (alpha, beta, *operands) = _OPERATIONS_BY_NAME[operation]
        descriptor = self.new(kind)
        number, one = (_DOUBLE, c_double * 1) if dtype == "f64" else (_FLOAT, c_float * 1)
        self.put(descriptor, alpha, number, one(1.0))
        self.put(descriptor, beta, number, one(0.0))
        for attribute, operand in zip(operands, (convolution, w, x, y), strict=True):
            self.put(descriptor, attribute, _DESCRIPTOR, _descriptors(operand))
        self.finalize(descriptor)
        graph = self.new(_GRAPH)
        self.put(graph, _OPERATIONS, _DESCRIPTOR, _descriptors(descriptor))
        return self.finalize(graph)

    # ---- what PyTorch does with it ----

    def workspaces(self, gpu: c_void_p, question: Sequence[Any]) -> list[int]:
        """List what the plans take that PyTorch would execute, in bytes, best plan first.

        Configurations come best first, then those that work where the others do not; which of
        them PyTorch leaves out depends on its settings.
        """
        is_float = question[1] == "f32"
        deterministic, allow_tf32 = question[8:]
        unwanted = {_DOWN_CONVERTS_INPUTS}
        unwanted |= {_NONDETERMINISTIC} if deterministic else set()
        unwanted |= {_TENSOR_CORE} if is_float and not allow_tf32 else set()
        with self.descriptors():
            graph = self._graph(question)
            sizes = [
                self._workspace(configuration, engine, gpu)
                for mode in (_INSTANT, _FALLBACK)
                for configuration in self._configurations(graph, gpu, mode)
                if unwanted.isdisjoint(
                    self._notes(engine := self._engine(configuration), _NOTES_OF_ENGINE, _NOTES)
                )
            ]
            return [size_bytes for size_bytes in sizes if size_bytes is not None]

    def _configurations(self, graph: c_void_p, gpu: c_void_p, mode: int) -> Iterator[c_void_p]:
        heuristics = self.new(_HEURISTICS)
        self.put(heuristics, _HEURISTICS_OF, _DESCRIPTOR, _descriptors(graph))
        self.put(heuristics, _HEURISTICS_IN, _HEURISTICS_MODE, _int32(mode))
        self.put(heuristics, _HEURISTICS_GPU, _DESCRIPTOR, _descriptors(gpu))
        try:
            self.finalize(heuristics)
            count = self.get(heuristics, _HEURISTICS_RESULTS, _DESCRIPTOR, ())
            count = min(count, _MOST_CONFIGURATIONS)
            room = _descriptors(*(self.new(_CONFIGURATION) for _ in range(count)))
            count = self.get(heuristics, _HEURISTICS_RESULTS, _DESCRIPTOR, room)
        except CudnnRefused:
            return
        for at in range(count):
            yield c_void_p(room[at])

    def _engine(self, configuration: c_void_p) -> c_void_p:
        room = _descriptors(self.new(_ENGINE))
        self.get(configuration, _ENGINE_OF_CONFIGURATION, _DESCRIPTOR, room)
        return c_void_p(room[0])

    def _notes(self, engine: c_void_p, attribute: int, kind: int) -> set[int]:
        notes = (c_int32 * 32)()
        count = self.get(engine, attribute, kind, notes)
        return set(notes[:count])

    def _workspace(self, configuration: c_void_p, engine: c_void_p, gpu: c_void_p) -> int | None:
        """Return what the plan of a configuration takes; None: cuDNN makes no plan of it.

        Engines that compile kernels need about a second to make a plan, or NVRTC, which may be
        missing. Their configurations report the same workspace: of 27 plans on four GPUs with
        cuDNN 9.20.0, and of 53 plans on four GPUs with 9.24.0 and 9.26.0, all took it.
        """
        size_bytes = (c_int64 * 1)()
        if _COMPILES_AT_RUN_TIME in self._notes(engine, _BEHAVIOR_OF_ENGINE, _BEHAVIOR_NOTES):
            self.get(configuration, _CONFIGURATION_WORKSPACE, _INT64, size_bytes)
            return size_bytes[0]
        plan = self.new(_PLAN)
        try:
            self.put(plan, _PLAN_OF, _DESCRIPTOR, _descriptors(configuration))
            self.put(plan, _PLAN_GPU, _DESCRIPTOR, _descriptors(gpu))
            self.finalize(plan)
            self.get(plan, _PLAN_WORKSPACE, _INT64, size_bytes)
        except CudnnRefused:
            return None
        return size_bytes[0]


def _int32(value: int) -> Any:
    return (c_int32 * 1)(value)


def _int64(*values: int) -> Any:
    return (c_int64 * len(values))(*values)


def _descriptors(*values: c_void_p) -> Any:
    return (c_void_p * len(values))(*(value.value for value in values))


def main(path: str) -> None:
    """Answer questions until stdin ends."""
    library = Cudnn(path)
    print(library.version, flush=True)
    gpus: dict[str, c_void_p] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        answers: list[list[int] | str] = []
        for question in asked["questions"]:
            try:
                text = asked["gpu"]
                gpus[text] = gpus.get(text) or library.gpu(text)
                answers.append(library.workspaces(gpus[text], question))
            except CudnnRefused as error:
                answers.append(str(error))
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
