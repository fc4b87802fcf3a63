"""Run ops while a CUDA graph is captured: what is recorded, and what is known afterwards.

A captured kernel runs when the graph is replayed. So what it writes is not known, even where its
operands are, and it may only use random number generators that the graph knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from vramlab.gpu.core.captures import invalidated
from vramlab.gpu.core.op_table import is_written
from vramlab.gpu.core.storage_record import record_of
from vramlab.gpu.core.tensors import outputs_of, tensors_in
from vramlab.gpu.torch_internals import OpOverload, generator_id, plain_name_of, schema_of

if TYPE_CHECKING:
    from vramlab.gpu.core.dispatcher import Dispatcher

Handler = Callable[..., Any]

PAGEABLE_COPY = (
    "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is "
    "pinned. Please use tensor.pin_memory() or allocate the tensor with pin_memory=True."
)
"""What `copy_kernel_cuda` in aten/src/ATen/native/cuda/Copy.cu says, PyTorch 2.13."""


def captured(handler: Handler) -> Handler:
    """Make a handler that also does what a capture asks for, if the op's stream has one."""

    def run(
        dispatcher: Dispatcher, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        result = handler(dispatcher, func, args, kwargs)
        device_index = _device_of(dispatcher, args, kwargs, result)
        if device_index is None or not _launches(func):
            return result
        machine = dispatcher.machine
        capture = machine.capture_on(device_index)
        if capture is None:
            return result
        capture.launches += 1
        for tensor in (*outputs_of(result), *_written(func, args, kwargs)):
            if tensor is not None and (record := record_of(tensor)) is not None:
                record.forget_values()
        generator = kwargs.get("generator")
        if capture.draw is not None:
            if capture.is_valid and _draws(func, args, kwargs):
                capture.draw(generator)
        elif generator is not None and generator_id(generator) not in capture.generators:
            del result  # the error's traceback has this frame
            raise RuntimeError(_unknown_generator(machine.torch_version))
        if not capture.is_valid:
            del result
            raise invalidated()
        return result

    return run


def _device_of(
    dispatcher: Dispatcher, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
) -> int | None:
    """Find the GPU on which an op ran; None where it ran on the host."""
    for tensor in (*tensors_in(args, kwargs), *outputs_of(result)):
        record = None if tensor is None else record_of(tensor)
        if record is not None and record.device_index >= 0:
            return record.device_index
    return None


def _launches(func: OpOverload) -> bool:
    """Return whether an op launches a kernel: views and empty tensors do not."""
    if plain_name_of(func).startswith(("empty", "new_empty")):
        return False
    schema = schema_of(func)
    is_view = bool(schema.returns) and all(each.alias_info is not None for each in schema.returns)
    return not is_view or any(is_written(argument) for argument in schema.arguments)


def _draws(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an op draws random numbers: not where nothing is dropped."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    arguments = schema_of(func).arguments
    given = {each.name: each.default_value for each in arguments if each.has_default_value()}
    given |= {each.name: arg for each, arg in zip(arguments, args, strict=False)} | dict(kwargs)
    drops = given.get("dropout_p", given.get("p")) != 0
    return drops and given.get("train", given.get("training")) is not False


def _written(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[torch.Tensor]:
    """Walk over the tensors that an op writes to."""
    arguments = schema_of(func).arguments
    given = {each.name: arg for each, arg in zip(arguments, args, strict=False)} | dict(kwargs)
    for argument in arguments:
        if is_written(argument):
            yield from tensors_in((given.get(argument.name),))


def _unknown_generator(torch_version: tuple[int, int]) -> str:
    """Report that a graph does not know a generator (CUDAGeneratorImpl.cpp of each version)."""
    if torch_version < (2, 12):
        return "Attempt to increase offset for a CUDA generator not in capture mode."
    return (
        "RNG op during graph capture but generator is not registered with the capturing graph. "
        "Call graph.register_generator_state() before capture_begin()."
    )
