"""Lesson 12: GPT-2 1.5B as the ZeRO paper counts it, and what fits on a T4."""

from __future__ import annotations

from dataclasses import replace

import torch

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab.measure.environment import GPUEnvironment, start_afresh
from vramlab.planner import Plan, estimate
from vramlab.programs import transformer_memory
from vramlab.programs.master_weights import MasterWeights
from vramlab.programs.optimizer_states import state_bytes
from vramlab.programs.transformer import Transformer
from vramlab.programs.transformer_memory import GPT2, Run, Sizes
from vramlab_course.experiments.outcome import Difference, Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.packing import packed
from vramlab_course.formulas.per_parameter import ZERO_MIXED_ADAM, zero_states_bytes
from vramlab_course.lessons.l12_estimating_large_models.transformer_step import (
    TransformerTraining,
    take_steps,
)

BATCH, SEQUENCE = 32, 1024
ZERO_PAPER = "arXiv 1910.02054"

_ROUNDED = 1_500_000_000
"""The parameters of 'GPT-2 1.5B', as the paper rounds them."""


@experiment(
    "gpt2-xl-states",
    lesson="12",
    question="What do 1.5 billion parameters need before the first activation?",
    source="003",
    figures=("gpt2-xl-states", "gpt2-xl-fused-buffer"),
    conditions=Conditions(gpu="A100-80GB", why="the paper counts bytes; it takes 32 GiB"),
)
def gpt2_xl_states() -> Outcome:
    """Allocate GPT-2 1.5B in float16, its gradients, float32 copies and Adam's states."""
    trial = Trial("gpt2-xl-states")
    sizes = GPT2["GPT-2 XL"]
    shapes = sizes.parameter_shapes()
    halves = [tensor_bytes(shape, "float16") for shape in shapes]
    wholes = [tensor_bytes(shape) for shape in shapes]
    with trial.stage("float16 weights") as weights:
        with torch.device("cuda"):
            model = Transformer(sizes).half()
        torch.cuda.empty_cache()
    weights.expect(expected("growth", _blocks(halves) + unsplit_remainder_bytes()))
    parameters = list(model.parameters())
    count = sum(parameter.numel() for parameter in parameters)
    stages = [weights]
    remainder_bytes = unsplit_remainder_bytes()
    with trial.stage("float16 gradients") as gradients:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
    gradients.expect(
        expected("growth", _blocks(halves) + unsplit_remainder_bytes() - remainder_bytes)
    )
    remainder_bytes = unsplit_remainder_bytes()
    with trial.stage("float32 copies") as copies:
        optimizer = MasterWeights(parameters, torch.optim.Adam)
    copies.expect(expected("growth", _blocks(wholes) + unsplit_remainder_bytes() - remainder_bytes))
    remainder_bytes = unsplit_remainder_bytes()
    with trial.stage("Adam's states") as states:
        optimizer.step()
    states.expect(
        expected(
            "growth", state_bytes("adam", wholes) + unsplit_remainder_bytes() - remainder_bytes
        )
    )
    stages += [gradients, copies, states]
    measured_bytes = sum(stage.measurement.growth_bytes for stage in stages)
    per_parameter = sum(ZERO_MIXED_ADAM.values())
    exact_bytes = zero_states_bytes(count)
    trial.find(
        "gpt2-xl-states",
        measured_bytes,
        predicted=_blocks(halves) * 2 + _blocks(wholes) + state_bytes("adam", wholes),
        differences=[
            Difference(
                per_parameter * (count - _ROUNDED),
                f"the model has {count:,} parameters; the paper says 1.5 billion, and at least",
                f"{ZERO_PAPER} §3.1",
            ),
            Difference(measured_bytes - exact_bytes, "blocks, and unsplit remainders"),
        ],
    )
    del optimizer
    for parameter in parameters:
        parameter.grad = None
    del parameter
    torch.cuda.empty_cache()
    with trial.stage(
        "flat float32 buffer",
        expected("growth", packed([4 * count])[0], "gpt2-xl-fused-buffer"),
    ):
        flat = torch.empty(count, device="cuda")
    del flat, model, parameters
    return trial.outcome()


@experiment(
    "gpt2-xl-activations",
    lesson="12",
    question="What do the activations of GPT-2 1.5B take, at 32 texts of 1024 tokens?",
    source="003",
    figures=("gpt2-xl-activations",),
    conditions=Conditions(
        gpu="B200", why="the paper counts bytes; with fused attention it takes 85 GiB"
    ),
)
def gpt2_xl_activations() -> Outcome:
    """Run the forward pass in three ways, all in float16: what is kept until the backward pass.

    Fused attention without dropout is the leanest without recomputation. Step by step and with
    dropout no GPU holds 32 texts; 8 tell as much. And checkpoints: the paper says 8 GB.
    """
    trial = Trial("gpt2-xl-activations")
    sizes = GPT2["GPT-2 XL"]
    lean = Run(BATCH, SEQUENCE, "pure bfloat16", attention="flash", dropout=False)
    plain = replace(lean, batch=BATCH // 4, attention="eager", dropout=True)
    checkpointed = replace(lean, checkpointing="full")
    measured_bytes = 0
    for name, run in (
        ("flash attention, no dropout", lean),
        ("attention step by step, dropout, a quarter of the batch", plain),
        ("flash attention, a checkpoint at each layer", checkpointed),
    ):
        training = TransformerTraining(sizes, run)
        remainder_bytes = unsplit_remainder_bytes()
        with trial.stage(name) as forward:
            loss = training.forward()
        kept_bytes = forward.measurement.growth_bytes
        forward.expect(
            expected(
                "growth",
                transformer_memory.kept_bytes(sizes, run)
                + trial.environment.linear_workspace_bytes()
                + unsplit_remainder_bytes()
                - remainder_bytes,
            )
        )
        if run is lean:
            measured_bytes = kept_bytes
        del loss, training
        start_afresh()
    tokens = BATCH * SEQUENCE * sizes.width
    gelu_bytes = sizes.layers * 8 * tokens
    paper_bytes = transformer_memory.zero_paper_activations_bytes(
        BATCH, SEQUENCE, sizes.width, sizes.layers
    )
    layers_bytes = sizes.layers * transformer_memory.layer_kept_bytes(sizes, lean)
    trial.find(
        "gpt2-xl-activations",
        measured_bytes,
        predicted=transformer_memory.kept_bytes(sizes, lean)
        + trial.environment.linear_workspace_bytes(),
        differences=[
            Difference(
                paper_bytes - figure("gpt2-xl-activations").nearest_bytes(),
                "the paper rounds 12 x hidden x batch x length x layers numbers of 2 B",
                f"{ZERO_PAPER} §3.2, footnote",
            ),
            Difference(
                gelu_bytes,
                "16 numbers for each element of the hidden state are kept, not 12: four of them "
                "are GELU's input, which can be recomputed",
                "tools/autograd/derivatives.yaml, gelu",
            ),
            Difference(
                layers_bytes - paper_bytes - gelu_bytes,
                "statistics of norms and of flash attention",
            ),
            Difference(
                measured_bytes - layers_bytes,
                "the last norm, the logits, cuBLAS's workspace and unsplit remainders",
            ),
        ],
    )
    return trial.outcome()


T4_TEXTS = (6, 4)
"""Batches of 1024 tokens whose limits are the two ends of the document's range."""


@experiment(
    "t4-params",
    lesson="12",
    question="How many parameters can a 16 GB GPU train?",
    source="000",
    figures=("t4-params",),
    conditions=Conditions(gpu="T4", why="the document names the GPU"),
)
def t4_params() -> Outcome:
    """Train GPT-2 small with more or fewer layers, in float32, with AdamW and eager attention.

    The planner says where the limit is if nothing is lost between blocks; from there down, each
    number of layers is tried.
    """
    trial = Trial("t4-params")
    published = figure("t4-params")
    for index, batch in enumerate(T4_TEXTS):
        run = Run(batch, SEQUENCE)
        predicted = most_layers(run, gpu_model(trial.environment))
        layers = predicted
        while True:
            with trial.stage(f"batch {batch}, {layers} layers", expected("peak")):
                fits = does_fit(replace(Sizes(), layers=layers), run)
            start_afresh()
            if fits:
                break
            layers -= 1
        measured = replace(Sizes(), layers=layers).parameters()
        trial.find(
            "t4-params",
            measured,
            predicted=replace(Sizes(), layers=predicted).parameters(),
            index=index,
            part=f"batch {batch}",
            differences=[
                Difference(
                    measured - int(published.number(index)),
                    f"the document names no model, batch or length; this is GPT-2 small with "
                    f"{layers} layers, {batch} texts of {SEQUENCE} tokens, float32, AdamW",
                )
            ],
        )
    return trial.outcome()


def most_layers(run: Run, gpu: GPUModel, sizes: Sizes | None = None) -> int:
    """Return the most layers whose blocks have room in the free memory of the current GPU.

    Args:
        run: how the model is trained.
        gpu: the current one.
        sizes: of the model; GPT-2 small's if None.
    """
    free_bytes, _ = torch.cuda.mem_get_info()
    room_bytes = free_bytes + torch.cuda.memory_reserved()
    plan = Plan.of_run(sizes or Sizes(), run, gpu)
    layers = 1
    while estimate(plan.cut(layers + 1)).peak_bytes <= room_bytes:
        layers += 1
    return layers


def does_fit(sizes: Sizes, run: Run) -> bool:
    """Return whether two training steps fit on the current GPU."""
    try:
        take_steps(sizes, run)
    except torch.OutOfMemoryError:
        return False
    return True


def gpu_model(here: GPUEnvironment) -> GPUModel:
    """Return a GPU with the facts of the attached one that a peak depends on."""
    return replace(
        catalogue.find("A100-80GB"),
        compute_capability=here.compute_capability,
        multiprocessors=here.multiprocessors,
        max_threads_per_multiprocessor=here.threads_per_multiprocessor,
    )


def _blocks(sizes_bytes: list[int]) -> int:
    return sum(map(block_bytes, sizes_bytes))
