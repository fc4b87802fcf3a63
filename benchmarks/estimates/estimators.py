"""The tools that say what a model will take, each asked in its own way for what it claims to know.

A tool is compared only with numbers that it claims to predict, for programs of the kind that it is
made for: `TOOLS` says for each what that is, and what it leaves out.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torchinfo
from accelerate.commands.estimate import estimate_training_usage  # type: ignore[import-untyped]
from accelerate.utils import calculate_maximum_sizes  # type: ignore[import-untyped]
from torch.distributed._tools.mem_tracker import MemTracker

from benchmarks.estimates.cases import CURVE, RECORDING, SUMMARY, Case, figure_of
from benchmarks.estimates.programs import PROGRAMS, Program, Quantity, Transformer, tensors_of
from benchmarks.estimates.recorded import on_the_virtual_gpu, zoo_programs
from benchmarks.estimates.results import RECORDINGS
from vramlab import VirtualGPU
from vramlab.units import KIB
from vramlab_course import experiments
from vramlab_course.experiments import Outcome


@dataclass(frozen=True)
class Answer:
    """What a tool says of some cases.

    Attributes:
        estimates_bytes: by the case's name; without those that the tool does not claim.
        failed: programs that it is made for and cannot run, with the error.
    """

    estimates_bytes: Mapping[str, int]
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tool:
    """A tool that predicts memory.

    Attributes:
        predicts: what it claims to know.
        leaves_out: what it does not see.
        estimate: what it says of cases.
    """

    predicts: str
    leaves_out: str
    estimate: Callable[[Sequence[Case]], Answer]


def by_program(
    predict: Callable[[Program], Mapping[Quantity, int]],
) -> Callable[[Sequence[Case]], Answer]:
    """Ask once for each program, and pick what the cases are about."""

    def estimate(cases: Sequence[Case]) -> Answer:
        known = {**PROGRAMS, **zoo_programs()}
        found: dict[str, Mapping[Quantity, int]] = {}
        failed: dict[str, str] = {}
        for name in dict.fromkeys(case.program for case in cases):
            gc.collect()
            try:
                found[name] = predict(known[name]) if name in known else {}
            except Exception as error:  # a tool's failure is a result
                found[name] = {}
                failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        estimates_bytes = {
            case.name: found[case.program][case.quantity]
            for case in cases
            if case.quantity in found[case.program]
        }
        return Answer(estimates_bytes, failed)

    return estimate


# ---- The virtual GPU ----


def virtual_gpu(cases: Sequence[Case]) -> Answer:
    """Return what the experiments measure under the conditions of their published figures.

    The published curve is read at other lengths than its experiment runs: its programs run on the
    default GPU. What was recorded runs on the virtual GPU that stands for the recorded one.
    """
    outcomes: dict[str, Outcome] = {}
    recorded = [case for case in cases if case.kind == RECORDING]
    found = on_the_virtual_gpu(recorded, RECORDINGS)
    for case in cases:
        if case.kind == RECORDING:
            continue
        if figure_of(case.name) == CURVE:
            found[case.name] = _allocated_after_forward(PROGRAMS[case.program])
            continue
        name = _experiment_of(case)
        if name not in outcomes:
            outcomes[name] = experiments.run_as_published(name)
        found[case.name] = _found(outcomes[name], case)
    return Answer(found)


def _allocated_after_forward(program: Program) -> int:
    gc.collect()
    with VirtualGPU():
        model, batch = program.build("cuda")
        output = program.run(model, batch)
        allocated_bytes = torch.cuda.memory_allocated()
        del output
    return allocated_bytes


def _experiment_of(case: Case) -> str:
    """Return the experiment that has the case's figure: of several the one named as the program."""
    figure_id = figure_of(case.name)
    names = [n for n in experiments.names() if figure_id in experiments.get(n).figures]
    return case.program if case.program in names else names[0]


_SUMMARY_PARTS = {
    f"{SUMMARY}: peak": "Allocated memory, all, Peak Usage",
    f"{SUMMARY}: reserved": "GPU reserved memory, all, Cur Usage",
}


def _found(outcome: Outcome, case: Case) -> int:
    part = _SUMMARY_PARTS.get(case.name)
    measured = outcome.finding(figure_of(case.name), part or "").measured
    assert isinstance(measured, int)
    return measured * KIB if part else measured


# ---- MemTracker ----

_META = torch.device("meta")


def mem_tracker(program: Program) -> Mapping[Quantity, int]:
    """Return what MemTracker counts of one step, on meta tensors, after each of its stages.

    The published steps run the forward pass twice, to see it with and without cuBLAS's workspace.
    Here it runs once: MemTracker keeps what a forward pass saved until a backward pass has come.
    """
    if program.precision.startswith("autocast") or program.checkpointing:
        return {}  # casts are CUDA's, and checkpointing's hooks are not MemTracker's
    model, batch = program.build("meta")
    if not any(True for _ in model.parameters()):
        return {}
    tracker = MemTracker()

    def total(kind: str = "current") -> int:
        return tracker.get_tracker_snapshot(kind).get(_META, {}).get("Total", 0)

    found: dict[Quantity, int] = {}
    tracker.track_external(model)
    found["parameters"] = total()
    tracker.track_external(*tensors_of(batch))
    found["input"] = total() - found["parameters"]
    before_bytes = total()
    with tracker:
        output = program.run(model, batch)
        found["after forward"] = total()
        found["forward"] = total() - before_bytes
        if program.optimizer is not None:
            loss = program.loss(output)
            found["after loss"] = total()
            loss.backward()
            found["after backward"] = before_step_bytes = total()
            optimizer = program.optimizer(model.parameters())
            optimizer.step()
            found["optimizer"] = total() - before_step_bytes
            found["peak"] = total("peak")
    return found


# ---- torchinfo ----


def torchinfo_summary(program: Program) -> Mapping[Quantity, int]:
    """Return the totals of `torchinfo.summary`: input, parameters, and in all.

    It says 'Forward/backward pass size' of all layers' outputs, doubled 'for gradients', and
    'Estimated Total Size' of the sum: that is a training step's peak.
    """
    if program.precision.startswith("autocast"):
        return {}
    model, batch = program.build("meta")
    totals = torchinfo.summary(model, input_data=batch, device="meta", verbose=0)
    if not totals.total_params:
        return {}
    found: dict[Quantity, int] = {
        "parameters": totals.total_param_bytes,
        "input": totals.total_input,
    }
    if program.trains and not program.checkpointing:
        found["peak"] = totals.total_input + totals.total_output_bytes + totals.total_param_bytes
    return found


# ---- accelerate estimate-memory ----


def accelerate_estimate(program: Program) -> Mapping[Quantity, int]:
    """Return the columns 'Total Size' and 'Training using Adam' of `accelerate estimate-memory`.

    The command downloads a model's configuration; here its functions get the model on meta. What it
    says of training is for a batch of one.
    """
    model, batch = program.build("meta")
    total_bytes, _ = calculate_maximum_sizes(model)
    if not total_bytes:
        return {}
    found: dict[Quantity, int] = {"parameters": total_bytes}
    precision = _IN_ACCELERATE.get(program.precision)
    if program.adam and precision and tensors_of(batch)[0].shape[0] == 1:
        found["peak"] = max(estimate_training_usage(total_bytes, precision).values())
    return found


_IN_ACCELERATE = {
    "fp32": "float32",
    "autocast-fp16": "float16",
    "autocast-bf16": "bfloat16",
}
"""What accelerate calls a precision: its half precisions are mixed, with weights in float32."""


# ---- Formulas ----


def transformer_parameters(sizes: Transformer) -> int:
    """Parameters of a transformer as EleutherAI's calculator counts them.

    Source: `calc_mem` in calc/calc_transformer_mem.py of EleutherAI/cookbook, commit 069ae2e: input
    and output embedding apart, learned positions, two matrices in the feed-forward part.
    """
    hidden, layers = sizes.hidden, sizes.layers
    embeddings = 2 * sizes.vocabulary * hidden + hidden * sizes.sequence
    norms = 8 * hidden * layers + 2 * hidden
    attention = 4 * layers * hidden * hidden
    feed_forward = 2 * layers * hidden * sizes.feed_forward
    return embeddings + norms + attention + feed_forward


def transformer_activations_bytes(
    sizes: Transformer, element_bytes: int, checkpointing: bool = False
) -> int:
    """Activations that training holds, by the same calculator.

    s·b·h·L·((16·e + 2) + (2·e + 1)·a·s/h) for elements of e bytes: each layer keeps 16 tensors of
    the hidden size and two dropout masks, and of attention two matrices and a mask; the second term
    is dropped where activations are checkpointed.
    """
    tokens = sizes.batch * sizes.sequence
    linear = (16 * element_bytes + 2) * sizes.hidden
    attention = 0 if checkpointing else (2 * element_bytes + 1) * sizes.heads * sizes.sequence
    return tokens * sizes.layers * (linear + attention)


def transformer_math(program: Program) -> Mapping[Quantity, int]:
    """EleutherAI's numbers for training a transformer.

    Its 18 B a parameter (weights 2, gradients 4, Adam and master weights 12) are said to be those
    of mixed precision, and with the activations make the peak there. Elsewhere only the weights and
    the activations are its claims.
    """
    sizes = program.transformer() if program.trains else None
    if sizes is None:
        return {}
    element_bytes = 4 if program.precision == "fp32" else 2
    parameters = transformer_parameters(sizes)
    activations_bytes = transformer_activations_bytes(sizes, element_bytes, program.checkpointing)
    found: dict[Quantity, int] = {"forward": activations_bytes}
    if not program.precision.startswith("autocast"):
        found["parameters"] = element_bytes * parameters
    elif program.adam:
        found["peak"] = 18 * parameters + activations_bytes
    return found


def no_case(cases: Sequence[Case]) -> Answer:
    """Of a tool whose claims no case is about."""
    return Answer({})


TOOLS = {
    "vramlab's virtual GPU": Tool(
        "everything that torch.cuda reports, including reserved memory",
        "cuDNN's workspaces that are not in its table; cuFFT's workspaces; kernels loaded on first "
        "use; ops whose kernels are not modelled",
        virtual_gpu,
    ),
    "MemTracker (torch)": Tool(
        "live tensors at any moment, and the peak",
        "cuBLAS's workspaces, temporaries of kernels, blocks that are not split, reserved memory, "
        "CUDA's own paths (fused dropout and attention)",
        by_program(mem_tracker),
    ),
    "torchinfo": Tool(
        "parameters, input, the total of a training step",
        "gradients and optimizer states, saved tensors of layers without parameters, the order of "
        "frees: it counts every output twice",
        by_program(torchinfo_summary),
    ),
    "accelerate estimate-memory": Tool(
        "parameters; training with Adam at a batch of one",
        "activations",
        by_program(accelerate_estimate),
    ),
    "DeepSpeed's ZeRO estimators": Tool(
        "weights, gradients and Adam's states in DeepSpeed's engine: 2 + 18/N B a parameter on "
        "each of N GPUs (ZeRO-2)",
        "activations, buffers, and every other engine: no case here uses its engine",
        no_case,
    ),
    "EleutherAI's transformer math": Tool(
        "a transformer's parameters, activations, gradients and states, from its sizes",
        "whether dropout is on, tied embeddings, which attention kernel runs, temporaries, the "
        "allocator",
        by_program(transformer_math),
    ),
}
"""By name, in the order of the table."""
