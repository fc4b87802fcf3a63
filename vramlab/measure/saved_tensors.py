"""What a program keeps for its backward pass, through torch's own hooks for saved tensors.

    with record_saved_tensors(model, inputs=x) as recording:
        loss = model(x).sum()
    saved = recording.saved(loss)
    saved                  # a table: op, shape, dtype, bytes, whose storage it is
    saved.kept_bytes       # what would not live without the backward pass

Works on a real GPU and on a virtual one: it asks only autograd. A storage is counted once, however
many ops save it. The recording keeps nothing alive: a graph that is dropped, or has run backward,
no longer keeps anything, and `recording.saved()` says so.

Source of the hooks: torch.autograd.graph.saved_tensors_hooks, PyTorch 2.13. Which op saved a tensor
is not told to them; it is found afterwards by walking the graph, whose nodes have an attribute
`_saved_<name>` for each tensor (in Python: `saved_tensors`).

Known limitations: a region under torch.utils.checkpoint brings hooks of its own, and within it only
what checkpoint itself keeps is seen. Nodes inside of an in-place op on a view (CopySlices) cannot
be walked: what they save is listed without the name of its op.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from vramlab.gpu.torch_internals import storage_id, version_of
from vramlab.measure.tensors import named_tensors, plain_tensors
from vramlab.table import ShownAsTable, Table
from vramlab.units import MIB

UNKNOWN_OP = "unknown"


class Whose(StrEnum):
    """Whose storage a saved tensor lies in. The first that applies counts."""

    PARAMETER = "parameter"
    """A parameter's or a buffer's: it lives as long as the model."""
    INPUT = "input"
    """One of the inputs that were named: the program holds it anyway."""
    EARLIER = "earlier"
    """One that a tensor listed above has already been counted for."""
    OUTPUT = "output"
    """One of the outputs that were named: it is kept as long as the graph or the output lives."""
    NEW = "new"
    """Referenced by autograd alone: it lives only for the backward pass."""
    HOST = "host"
    """Not on a GPU, such as a number that a tensor was multiplied by."""


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """One tensor that one op keeps for its backward pass."""

    op: str
    """Name of the node in autograd's graph, such as 'ReluBackward0'; 'unknown' if not found."""
    saved_as: str
    """What the op calls it: 'self', 'result', 'weight', ...; '' if not found."""
    module: str
    """Name of the module that ran, such as 'encoder.0'; '' outside of named modules."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    tensor_bytes: int
    """Elements times the size of one."""
    storage_bytes: int
    """The whole storage that it keeps alive; more than `tensor_bytes` if it is a part of it."""
    whose: Whose
    name: str
    """Name of the parameter, input, output or earlier tensor whose storage it is; '' if new."""

    @property
    def kept_bytes(self) -> int:
        """Bytes that it adds to what is kept: its storage if new or an output, else nothing."""
        return self.storage_bytes if self.whose in (Whose.NEW, Whose.OUTPUT) else 0


@dataclass(frozen=True)
class SavedTensors(ShownAsTable):
    """All that a graph keeps for its backward pass at one moment, in the order of saving."""

    tensors: tuple[SavedTensor, ...]

    @property
    def kept_bytes(self) -> int:
        """Bytes of all storages that are neither a parameter's nor an input's, each once.

        As requested; the allocator rounds each storage up to 512 bytes.
        """
        return sum(tensor.kept_bytes for tensor in self.tensors)

    def kept_bytes_by(self, key: Callable[[SavedTensor], str]) -> dict[str, int]:
        """Sum kept bytes in groups, such as `kept_bytes_by(lambda tensor: tensor.module)`."""
        sums: dict[str, int] = {}
        for tensor in self.tensors:
            sums[key(tensor)] = sums.get(key(tensor), 0) + tensor.kept_bytes
        return sums

    def table(self) -> Table:
        """Show one row per saved tensor, and the sum."""
        numbers = {id(tensor): str(n) for n, tensor in enumerate(self.tensors, start=1)}
        with_modules = any(tensor.module for tensor in self.tensors)
        rows = [
            (
                numbers[id(tensor)],
                *((tensor.module,) if with_modules else ()),
                f"{tensor.op}\n{tensor.saved_as}",
                " x ".join(map(str, tensor.shape)) or "scalar",
                str(tensor.dtype).removeprefix("torch."),
                f"{tensor.tensor_bytes:,}",
                f"{tensor.whose}: {tensor.name}" if tensor.name else str(tensor.whose),
                f"{tensor.kept_bytes:,}",
            )
            for tensor in self.tensors
        ]
        module = ("module",) if with_modules else ()
        subject = "1 saved tensor keeps" if len(rows) == 1 else f"{len(rows)} saved tensors keep"
        return Table(
            caption=f"{subject} {self.kept_bytes / MIB:,.4f} MiB ({self.kept_bytes:,} B)",
            header=(
                "number",
                *module,
                "saved by, as",
                "shape",
                "dtype",
                "bytes",
                "storage",
                "kept bytes",
            ),
            rows=tuple(rows),
        )


@contextmanager
def record_saved_tensors(
    model: torch.nn.Module | None = None, inputs: Any = ()
) -> Iterator[SavedTensorsRecording]:
    """Note every tensor that is saved for backward while the body of the with statement runs.

    Args:
        model: its parameters and buffers are listed separately, and its modules are named.
        inputs: a tensor, or tensors in lists, tuples and dicts, that the program holds anyway.
    """
    recording = SavedTensorsRecording(model, inputs)
    hooks = [] if model is None else recording._name_modules(model)
    try:
        with torch.autograd.graph.saved_tensors_hooks(recording._pack, recording._unpack):
            yield recording
    finally:
        for hook in hooks:
            hook.remove()


def saved_by(
    program: Callable[[], Any], model: torch.nn.Module | None = None, inputs: Any = ()
) -> SavedTensors:
    """Run a program and return the tensors that autograd saves for backward.

    Args:
        program: called without arguments; gives a tensor, or tensors in lists, tuples and dicts.
        model, inputs: as in `record_saved_tensors`.
    """
    with record_saved_tensors(model, inputs) as recording:
        outputs = program()
    return recording.saved(outputs)


class _Handle:
    """What autograd holds instead of the tensor: the tensor, and where it came from."""

    __slots__ = ("__weakref__", "module", "op", "saved_as", "tensor", "version")

    def __init__(self, tensor: torch.Tensor, module: str) -> None:
        # An op's output knows its op, and the op will hold this handle: detached, they are no
        # circle that only the garbage collector could break.
        self.tensor = tensor.detach()
        self.version = version_of(tensor)
        self.module = module
        self.op = UNKNOWN_OP
        self.saved_as = ""


class SavedTensorsRecording:
    """What `with record_saved_tensors() as recording` gives: asks what is kept at any moment."""

    def __init__(self, model: torch.nn.Module | None, inputs: Any) -> None:
        self._model = None if model is None else weakref.ref(model)
        self._inputs = [
            (name, weakref.ref(tensor))
            for name, tensor in named_tensors(inputs, "input", number_alone=False)
        ]
        self._handles: list[weakref.ref[_Handle]] = []
        self._running_modules: list[str] = []
        self._visited: tuple[str, str] | None = None

    def saved(self, outputs: Any = ()) -> SavedTensors:
        """List what is kept now, of all that was saved while the recording ran.

        Args:
            outputs: a tensor, or tensors in lists, tuples and dicts, whose graph names the op that
                saved each tensor. Without them the ops are 'unknown'.
        """
        named_outputs = list(named_tensors(outputs, "output", number_alone=False))
        self._name_ops(tensor for _, tensor in named_outputs)
        owners = self._owners(named_outputs)
        saved: list[SavedTensor] = []
        first_numbers: dict[int, str] = {}
        for handle in filter(None, (reference() for reference in self._handles)):
            for tensor in plain_tensors(handle.tensor):
                storage = tensor.untyped_storage()
                key = storage_id(storage)
                whose, name = owners.get(key, (Whose.NEW, ""))
                if not tensor.is_cuda:
                    whose, name = Whose.HOST, ""
                elif key in first_numbers and whose in (Whose.NEW, Whose.OUTPUT):
                    whose, name = Whose.EARLIER, first_numbers[key]
                first_numbers.setdefault(key, f"number {len(saved) + 1}")
                saved.append(
                    SavedTensor(
                        op=handle.op,
                        saved_as=handle.saved_as,
                        module=handle.module,
                        shape=tuple(tensor.shape),
                        dtype=tensor.dtype,
                        tensor_bytes=tensor.numel() * tensor.element_size(),
                        storage_bytes=storage.nbytes(),
                        whose=whose,
                        name=name,
                    )
                )
        return SavedTensors(tuple(saved))

    def _pack(self, tensor: torch.Tensor) -> _Handle:
        handle = _Handle(tensor, self._running_modules[-1] if self._running_modules else "")
        self._handles.append(weakref.ref(handle))
        return handle

    def _unpack(self, handle: _Handle) -> torch.Tensor:
        if self._visited is not None:
            handle.op, handle.saved_as = self._visited
        elif version_of(handle.tensor) != handle.version:
            # Where there are hooks, autograd leaves this check to them.
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: {tuple(handle.tensor.shape)}, saved by {handle.op}, is at "
                f"version {version_of(handle.tensor)}; expected version {handle.version} instead"
            )
        return handle.tensor

    def _name_modules(self, model: torch.nn.Module) -> list[Any]:
        """Keep track of which module runs; gives the hooks, which the caller removes."""
        hooks: list[Any] = []
        for name, module in model.named_modules():
            if name:
                hooks.append(
                    module.register_forward_pre_hook(
                        lambda *_, name=name: self._running_modules.append(name)
                    )
                )
                hooks.append(
                    module.register_forward_hook(
                        lambda *_: _discard(self._running_modules.pop()), always_call=True
                    )
                )
        return hooks

    def _name_ops(self, outputs: Iterable[torch.Tensor]) -> None:
        """Walk the graph and look at each node's tensors, so that their handles learn its name."""
        nodes: list[Any] = [output.grad_fn for output in outputs]
        met = set()
        while nodes:
            node = nodes.pop()
            if node is None or node in met:
                continue
            met.add(node)
            nodes += [function for function, _ in node.next_functions]
            for attribute in dir(node):
                if attribute.startswith("_saved_") or attribute == "saved_tensors":
                    self._look_at(node, attribute)

    def _look_at(self, node: Any, attribute: str) -> None:
        """Read one attribute of a node, and with it let `_unpack` name the tensors behind it."""
        self._visited = (str(node.name()), attribute.removeprefix("_saved_"))
        try:
            getattr(node, attribute)
        except RuntimeError:
            pass  # this node has run backward and has let its tensors go
        finally:
            self._visited = None

    def _owners(
        self, named_outputs: Iterable[tuple[str, torch.Tensor]]
    ) -> dict[int, tuple[Whose, str]]:
        """Whose storages there are, by the address of torch's storage object."""
        owners: dict[int, tuple[Whose, str]] = {}

        def claim(tensor: torch.Tensor, whose: Whose, name: str) -> None:
            for plain in plain_tensors(tensor):
                owners.setdefault(storage_id(plain.untyped_storage()), (whose, name))

        model = None if self._model is None else self._model()
        if model is not None:
            for name, parameter in model.named_parameters():
                claim(parameter, Whose.PARAMETER, name)
            for name, buffer in model.named_buffers():
                claim(buffer, Whose.PARAMETER, name)
        for name, reference in self._inputs:
            tensor = reference()
            if tensor is not None:
                claim(tensor, Whose.INPUT, name)
        for name, tensor in named_outputs:
            claim(tensor, Whose.OUTPUT, name)
        return owners


def _discard(_: Any) -> None:
    """Take a value and give None: what a forward hook has to give to leave the output alone."""
