"""Calls of PyTorch's own databases of operators, modules and optimizers, and of attention.

Each is built on the host, moved to the GPU that is attached, and run forward and backward; what it
allocates is its `Trace`. The databases are those that PyTorch tests itself with
(torch/testing/_internal, which needs expecttest).

    export PYTHONHASHSEED=0     the databases go through sets of words: the same samples each time
    python -m benchmarks.operator_calls --gpu A100-40GB FILE        on the portable engine
    vramlab native run --torch 2.13.0 --gpu A100-40GB -m benchmarks.operator_calls FILE
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import itertools
import json
import os
import random
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

import vramlab
from vramlab.native.values import KnownValues

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
SMALL, LARGE = "small", "large"
LENGTHS = {SMALL: {}, LARGE: {"XS": 21, "S": 40, "M": 130, "L": 300}}
"""What the databases call their lengths, where not as PyTorch has them (3, 5, 10 and 20)."""
MOST_CALLS = {SMALL: 8, LARGE: 4}
"""How many samples of one entry, dtype and size are run, spread over all that there are."""
_MOST_SAMPLES = 48
_MOST_BYTES = 256 << 20
_NO_HOST_BYTES = 1 << 40
_ENTRIES_OF_A_PROCESS = 25
_SECONDS = 120
_SEED = 0
_MOST_CHARACTERS = 200

Row = dict[str, Any]

Run = Callable[[Any], Any]


@dataclass(frozen=True)
class OperatorCall:
    """One call.

    Attributes:
        label: which of its entry's it is, such as "bfloat16 large 3".
        operands: what it works on, on the host: tensors in any nesting.
        run: works on the same operands, on a GPU, and returns what is differentiated.
        is_dense: whether gradients come as tensors of their own; else as one number, expanded.
    """

    label: str
    operands: Any
    run: Run
    is_dense: bool = True


@dataclass(frozen=True)
class Trace:
    """What one call allocated.

    Attributes:
        forward: each size as it was requested.
        forward_peak_bytes: its peak beyond its operands.
        backward: the same of the backward pass; None without one.
        backward_peak_bytes: the same.
        by_values: whether a size may follow from values that one of the engines does not have:
            values that do not exist were read, or a gradient's formula, which is C++, asked for
            an op whose size follows from them.
    """

    forward: list[int]
    forward_peak_bytes: int
    backward: list[int] | None
    backward_peak_bytes: int | None
    by_values: bool


Entry = tuple[str, Callable[[], Iterator[OperatorCall]]]


def entries() -> list[Entry]:
    """List everything there is to call, by name."""
    common = "torch.testing._internal.common_"
    with (
        patch("torch.cuda.is_available", return_value=False),  # else CUDA starts before the forks
        patch("torch.backends.disable_global_flags"),  # which freezes settings of this process
    ):
        operators = importlib.import_module(f"{common}methods_invocations").op_db
        modules = importlib.import_module(f"{common}modules").module_db
        optimizers = importlib.import_module(f"{common}optimizers").optim_db
    found: list[Entry] = [
        *((f"op {each.formatted_name}", partial(_operator, each)) for each in operators),
        *((f"module {each.formatted_name}", partial(_module, each)) for each in modules),
        *(
            (f"optimizer {each.optim_cls.__name__}", partial(_optimizer, each))
            for each in optimizers
        ),
        *((f"attention {name}", partial(_attention, name)) for name in ATTENTION_MASKS),
    ]
    return sorted(found, key=lambda entry: entry[0])


def _operator(info: Any) -> Iterator[OperatorCall]:
    """Yield samples of an operator in every dtype and size, and of its form that works in place."""
    supported = info.supported_dtypes("cuda") | info.supported_dtypes("cpu")
    dtypes = [dtype for dtype in DTYPES if dtype in supported]
    for dtype, size in itertools.product(dtypes, LENGTHS):
        has_gradient = bool(info.supports_autograd and dtype.is_floating_point)
        samples = _spread(partial(info.sample_inputs, "cpu", dtype, has_gradient), size)
        for number, sample in enumerate(samples):
            label = f"{_name(dtype)} {size} {number}"
            operands = sample.input, sample.args, sample.kwargs
            run = partial(_run_sample, info.op, sample.output_process_fn_grad)
            yield OperatorCall(label, operands, run, is_dense=number % 2 == 0)
            changes = info.inplace_variant
            if changes and size == SMALL and not sample.broadcasts_input:
                run = partial(_run_on_copy, changes, sample.output_process_fn_grad)
                yield OperatorCall(f"{label} in place", operands, run)


def _run_sample(function: Callable[..., Any], finish: Run, operands: Any) -> Any:
    tensor, args, kwargs = operands
    return finish(function(tensor, *args, **kwargs))


def _run_on_copy(function: Callable[..., Any], finish: Run, operands: Any) -> Any:
    tensor, args, kwargs = operands
    copied = tensor.clone() if isinstance(tensor, torch.Tensor) else tensor
    return finish(function(copied, *args, **kwargs))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _spread(make: Callable[[], Iterable[Any]], size: str) -> list[Any]:
    """Take some of all samples, of lengths of that size."""
    common = importlib.import_module("torch.testing._internal.common_methods_invocations")
    before = {name: getattr(common, name) for name in LENGTHS[size]}
    vars(common).update(LENGTHS[size])
    try:
        torch.manual_seed(_SEED)
        random.seed(_SEED)
        there = [*_until_it_fails(itertools.islice(make(), _MOST_SAMPLES))]
    finally:
        vars(common).update(before)
    most = min(MOST_CALLS[size], len(there))
    return [there[at * len(there) // most] for at in range(most)]


def _until_it_fails(samples: Iterable[Any]) -> Iterator[Any]:
    """Yield samples until one cannot be built in these lengths, or is too large for any host.

    The portable engine makes large host tensors without values, so there such a sample would run.
    """
    with contextlib.suppress(Exception):
        for sample in samples:
            operands = [getattr(sample, name, None) for name in ("input", "args", "kwargs")]
            if _bytes_in(operands) > _NO_HOST_BYTES:
                return
            yield sample


def _module(info: Any) -> Iterator[OperatorCall]:
    """Yield calls of a module, whose weights are among the operands."""
    for dtype, training in itertools.product(DTYPES[:2], (True, False)):
        if dtype not in info.dtypes:
            continue
        make = partial(
            info.module_inputs_func, info, "cpu", dtype, requires_grad=True, training=training
        )
        for number, given in enumerate(_spread(make, SMALL)):
            args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
            if given.forward_input is None:
                continue
            try:
                torch.manual_seed(_SEED)
                module = info.module_cls(*args, **kwargs).to(dtype).train(training)
            except Exception:
                continue

            state = dict(itertools.chain(module.named_parameters(), module.named_buffers()))
            operands = state, given.forward_input.args, given.forward_input.kwargs
            mode = "training" if training else "evaluation"
            label = f"{_name(dtype)} {mode} {number}"
            yield OperatorCall(label, operands, partial(_run_module, module))


def _run_module(module: torch.nn.Module, operands: Any) -> Any:
    state, args, kwargs = operands
    return torch.func.functional_call(module, state, args, kwargs)


def _optimizer(info: Any) -> Iterator[OperatorCall]:
    """Yield two steps of an optimizer in each of its settings, on tensors small and large."""
    for number, settings in enumerate(info.optim_inputs_func(device="cuda")):
        kwargs = {name: value for name, value in settings.kwargs.items() if not _has_tensor(value)}
        forms: list[dict[str, bool]] = [{}]
        forms += [{name: True} for name in ("foreach", "fused") if name in info.supported_impls]
        if "foreach" in info.supported_impls:
            forms.append({"foreach": False})
        for form, dtype in itertools.product(forms, DTYPES[:2]):
            shapes = ((7,), (300, 1000), (64, 3, 3, 3), (5, 5))
            weights = [torch.zeros(shape, dtype=dtype) for shape in shapes]

            run = partial(_take_steps, partial(info.optim_cls, **kwargs, **form))
            what = " ".join([_name(dtype), *form, *map(str, form.values())])
            yield OperatorCall(f"{number} {what}", weights, run)


def _take_steps(make: Callable[..., torch.optim.Optimizer], weights: Any) -> None:
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer = make(weights)
    for _ in range(2):
        optimizer.step(lambda: 0.0) if isinstance(
            optimizer, torch.optim.LBFGS
        ) else optimizer.step()


def _has_tensor(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value))


ATTENTION_MASKS: Mapping[str, Callable[[int, int, int, int], tuple[int, ...]] | None] = {
    "none": None,
    "causal": None,
    "bool": lambda batch, heads, length, keys: (batch, 1, length, keys),
    "float": lambda batch, heads, length, keys: (batch, heads, length, keys),
    "row": lambda batch, heads, length, keys: (length, keys),
    "head": lambda batch, heads, length, keys: (1, heads, length, keys),
    "padding": lambda batch, heads, length, keys: (batch, 1, 1, keys),
}
"""Shapes of masks, by batch, heads, queries and keys; those of "bool" and "padding" are boolean."""
_QUERIES = (1, 7, 16, 50, 64, 77, 100, 128, 200, 257, 300, 512, 700, 1024, 1030)
_CALLS_OF_ATTENTION = 60


def _attention(mask: str) -> Iterator[OperatorCall]:
    """Yield attention over lengths, dtypes, head sizes, grouped queries and dropout, at random."""
    chance = random.Random(mask)
    for number in range(_CALLS_OF_ATTENTION):
        dtype = chance.choice((torch.float32, torch.bfloat16, torch.float16))
        batch, heads = chance.choice((1, 2, 3)), chance.choice((2, 4, 8))
        groups = chance.choice((1, 1, 1, 2))
        size = chance.choice((8, 20, 32, 40, 64, 80, 96, 128))
        length = chance.choice(_QUERIES)
        keys = length if mask == "causal" else chance.choice((length, length, 77, 1))
        dropout = chance.choice((0.0, 0.0, 0.0, 0.1))
        trains = chance.random() < 0.75
        # As projections give it: heads side by side.
        shapes = (length, heads), (keys, heads // groups), (keys, heads // groups)
        tensors = [
            torch.zeros(batch, *shape, size, dtype=dtype).transpose(1, 2).requires_grad_(trains)
            for shape in shapes
        ]
        bias = None
        if (shape_of := ATTENTION_MASKS[mask]) is not None:
            is_boolean = mask in ("bool", "padding")
            shape = shape_of(batch, heads, length, keys)
            bias = torch.ones(shape, dtype=torch.bool if is_boolean else dtype)
        options = {"dropout_p": dropout, "is_causal": mask == "causal", "enable_gqa": groups > 1}
        label = f"{number} {_name(dtype)} {batch}x{heads}/{groups}x{length}x{size}, {keys} keys"
        yield OperatorCall(
            f"{label}, dropout {dropout}", (*tensors, bias), partial(_run_attention, options)
        )


def _run_attention(options: Mapping[str, Any], operands: Any) -> torch.Tensor:
    query, key, value, bias = operands
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=bias, **options
    )


def trace(call: OperatorCall) -> Trace:
    """Move a call's operands to the GPU, run it forward and backward, and return what it took."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to("cuda").requires_grad_(tensor.requires_grad)

    operands = tree_map_only(torch.Tensor, move, call.operands)
    _free_leftovers()
    torch.manual_seed(_SEED)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # what other calls have left decides which blocks are split
    torch.cuda.reset_peak_memory_stats()
    before, reads = torch.cuda.memory_allocated(), _values_read()
    with _history() as sizes:
        result = call.run(operands)
        forward = sizes()
        forward_peak_bytes = torch.cuda.max_memory_allocated() - before
        outputs = [
            each
            for each in tree_leaves(result)
            if isinstance(each, torch.Tensor) and each.requires_grad
        ]
        if not outputs:
            return Trace(forward, forward_peak_bytes, None, None, _values_read() != reads)
        if call.is_dense:
            gradients: list[Any] = [torch.ones_like(each) for each in outputs]
        else:
            one = torch.ones((), device="cuda")
            gradients = [one.to(each.dtype).expand_as(each) for each in outputs]
        begun = len(sizes())
        torch.cuda.reset_peak_memory_stats()
        sized = _ops_sized_by_values()
        torch.autograd.backward(outputs, gradients)
        return Trace(
            forward,
            forward_peak_bytes,
            sizes()[begun:],
            torch.cuda.max_memory_allocated() - before,
            _values_read() != reads or _ops_sized_by_values() != sized,
        )


@functools.cache
def _settled() -> tuple[torch.Tensor, torch.Tensor]:
    leaf = torch.zeros((), device="cuda", requires_grad=True)
    leaf.grad = torch.zeros_like(leaf)
    return leaf, torch.zeros_like(leaf)


def _free_leftovers() -> None:
    """Collect garbage, and wait until autograd's thread has freed the last node it ran.

    The thread frees it after `backward()` has returned, but before it begins with another node.
    """
    gc.collect()
    leaf, gradient = _settled()
    leaf.backward(gradient)


@contextlib.contextmanager
def _history() -> Iterator[Callable[[], list[int]]]:
    memory: Any = torch.cuda.memory
    memory._record_memory_history(enabled=None)
    memory._record_memory_history(context=None, stacks="python", max_entries=1_000_000)

    def sizes() -> list[int]:
        traces = memory._snapshot()["device_traces"]
        return [event["size"] for each in traces for event in each if event["action"] == "alloc"]

    try:
        yield sizes
    finally:
        memory._record_memory_history(enabled=None)


@functools.cache
def _known_values() -> KnownValues:
    """Keep what is known of values on the native engine."""
    return KnownValues()


def _values_read() -> int:
    """Count the values that were read and do not exist, and that sizes may follow from."""
    gpu = vramlab.attached()
    if isinstance(gpu, vramlab.VirtualGPU):
        values: Any = gpu.values
        return sum(values.reads.values())
    # There, PyTorch's own code reads numbers that decide about its path alone.
    reads = _known_values().reads.items()
    return sum(times for (what, _), times in reads if what.startswith("shape of"))


def _ops_sized_by_values() -> int:
    """Count the ops whose sizes follow from values, on a virtual GPU."""
    gpu = vramlab.attached()
    if not isinstance(gpu, vramlab.VirtualGPU):
        return 0
    dynamic = torch.Tag.dynamic_output_shape
    counts: Mapping[Any, int] = gpu.dispatcher.seen
    return sum(count for func, count in counts.items() if dynamic in func.tags)


def _bytes_in(operands: Any) -> int:
    tensors = [each for each in tree_leaves(operands) if isinstance(each, torch.Tensor)]
    return sum(each.numel() * each.element_size() for each in tensors)


def _write_traces(
    wanted: Sequence[Entry],
    attach: Callable[[], object],
    is_wanted: Callable[[str, str], bool],
    out: IO[str],
) -> None:
    """Run every call of some entries in this process: [entry, label, trace] in lines of JSON."""

    def write(*values: Any) -> None:
        out.write(json.dumps(values) + "\n")
        out.flush()

    warnings.simplefilter("ignore")
    attach()
    # What the first product takes, in this thread and in autograd's, is not the calls'.
    weight = torch.ones(64, 64, device="cuda", requires_grad=True)
    (weight @ weight).sum().backward()
    del weight
    gc.freeze()  # what has been imported is no garbage
    for name, build in wanted:
        write(name, None, None)
        signal.alarm(_SECONDS)
        with contextlib.suppress(ValueError):  # a lazy module has no sizes before it is called
            for call in build():
                if not is_wanted(name, call.label) or _bytes_in(call.operands) > _MOST_BYTES:
                    continue
                try:
                    write(name, call.label, asdict(trace(call)))
                except Exception as error:
                    said = f"{type(error).__name__}: {str(error)[:_MOST_CHARACTERS]}"
                    write(name, call.label, {"raised": said})


def run_all(
    wanted: Sequence[Entry],
    attach: Callable[[], object],
    write: Callable[[Row], object],
    is_wanted: Callable[[str, str], bool] = lambda entry, label: True,
) -> None:
    """Run entries in child processes: one that ends by a signal ends one entry only.

    Args:
        wanted: some of `entries()`.
        attach: attaches the GPU, in each child process.
        write: takes the row of each entry: its name, its calls, how its process ended.
        is_wanted: whether to run a call, by the names of its entry and itself.

    Raises:
        SystemExit: no GPU could be attached.
    """
    begun = 0
    while begun < len(wanted):
        reading, writing = os.pipe()
        if (process := os.fork()) == 0:
            status = 1
            try:
                os.close(reading)
                with os.fdopen(writing, "w") as out:
                    _write_traces(
                        wanted[begun : begun + _ENTRIES_OF_A_PROCESS], attach, is_wanted, out
                    )
                status = 0
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(writing)
        rows: list[Row] = []
        with os.fdopen(reading) as lines:
            for name, label, found in map(json.loads, lines):
                if label is None:
                    rows.append({"entry": name, "calls": {}, "ended": 0})
                else:
                    rows[-1]["calls"][label] = found
        ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if not rows:
            raise SystemExit(f"no GPU could be attached: the process ended with {ended}")
        rows[-1]["ended"] = ended
        begun += len(rows)
        for row in rows:
            write(row)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, and write one line of JSON for each entry."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="where results go, a line of JSON for each entry")
    parser.add_argument(
        "--gpu", help="attach this virtual GPU (default: use the GPU that is there)"
    )
    parser.add_argument("--only", default="", help="regular expression of the entries' names")
    parser.add_argument("--shard", default="0/1", help="part of all entries, such as 1/4")
    wanted = parser.parse_args(arguments)
    at, _, parts = wanted.shard.partition("/")
    there = [entry for entry in entries() if re.search(wanted.only, entry[0])]
    with open(wanted.file, "w", encoding="utf-8") as file:

        def write(row: Row) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        run_all(there[int(at) :: int(parts)], partial(_attach, wanted.gpu), write)


def _attach(gpu: str | None) -> None:
    if gpu is None:
        _known_values().__enter__()
    else:
        vramlab.VirtualGPU(gpu, on_value="nan", host_values_below_bytes=_MOST_BYTES).attach()


if __name__ == "__main__":
    main()
