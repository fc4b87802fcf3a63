"""Lesson 05: both documents' Linear models through a training step, stage by stage."""

from __future__ import annotations

import torch

from vramlab.cuda_rules.cublas import BEFORE_HOPPER_BYTES
from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.environment import GPUEnvironment
from vramlab.programs.optimizer_states import state_bytes
from vramlab.units import KIB
from vramlab_course.experiments.outcome import Difference, Finding, Outcome
from vramlab_course.experiments.published import figure
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.activations import repeated_linear_bytes
from vramlab_course.formulas.parameters import linear_chain_shapes
from vramlab_course.formulas.training import SCALAR_BYTES, LinearChain
from vramlab_course.programs.documents import RepeatedLinear, linear_net

BATCH, WIDTHS = 10240, (1024, 1024, 1024, 2048)
"""Document 001's model and input."""


def workspaces_differ(here_bytes: int, documents: int) -> Difference:
    """Compare cuBLAS's workspaces with the 8.125 MiB that document 001 saw, `documents` times."""
    return Difference(
        here_bytes - documents * BEFORE_HOPPER_BYTES,
        f"cuBLAS's workspaces: {here_bytes:,} B on this GPU with this PyTorch, "
        f"{documents * BEFORE_HOPPER_BYTES:,} B in the document",
        "aten/src/ATen/cuda/CublasHandlePool.cpp",
    )


@experiment(
    "three-linear",
    lesson="05",
    question="What does a training step of three Linear layers hold, and what is its peak?",
    source="001 §2.21 to §2.25",
    figures=(
        "three-linear-params",
        "three-linear-input",
        "three-linear-forward-first",
        "three-linear-forward-again",
        "three-linear-after-backward",
        "three-linear-peak",
        "three-linear-adamw",
    ),
    conditions=Conditions(
        gpu="RTX-3090",
        why="8.125 MiB is cuBLAS's workspace since PyTorch 2.0 on GPUs before Hopper; of those, on "
        "a V100, A100 or RTX 4090 the peak is elsewhere, where a bias's gradient is summed",
    ),
)
def three_linear(*, fused_bias: bool = True, name: str = "three-linear") -> Outcome:
    """Train document 001's model on its input for one step, and a second one.

    Args:
        fused_bias: nn.Linear as it is; or layers that add the bias in an op of their own, with
            which the published peak comes out to the byte.
        name: of the experiment.
    """
    trial = Trial(name, fused_bias=fused_bias)
    chain = LinearChain(BATCH, WIDTHS, fused_bias=fused_bias)
    here = trial.environment
    # The calling thread's workspace, and the one of the autograd engine's thread.
    forward_workspace_bytes = here.linear_workspace_bytes(bias=fused_bias)
    workspaces_bytes = forward_workspace_bytes + here.matmul_workspace_bytes()
    outputs_bytes = sum(map(chain.rows_bytes, WIDTHS[1:]))

    with trial.stage(
        "parameters", expected("growth", chain.parameters_bytes, "three-linear-params")
    ):
        model = linear_net(WIDTHS, fused_bias=fused_bias).to("cuda")
    with trial.stage("input", expected("growth", chain.rows_bytes(1024), "three-linear-input")):
        x = torch.zeros(BATCH, WIDTHS[0]).to("cuda")
    with trial.stage(
        "forward",
        expected(
            "growth",
            outputs_bytes + forward_workspace_bytes,
            "three-linear-forward-first",
            differences=[workspaces_differ(forward_workspace_bytes, 1)],
        ),
    ):
        y = model(x)
    del y
    with trial.stage(
        "forward again", expected("growth", outputs_bytes, "three-linear-forward-again")
    ):
        y = model(x)
    held_bytes = chain.held_after_backward_bytes + workspaces_bytes
    peak_bytes, differences = _peak(chain, here, workspaces_bytes)
    with trial.stage(
        "loss and backward",
        expected(
            "allocated",
            held_bytes,
            "three-linear-after-backward",
            differences=[workspaces_differ(workspaces_bytes, 2)],
        ),
        expected("peak", peak_bytes, "three-linear-peak", differences=differences),
    ):
        loss = y.sum()
        loss.backward()
    shapes = linear_chain_shapes(WIDTHS)
    states_bytes = state_bytes("adamw", [tensor_bytes(shape) for shape in shapes])
    with trial.stage("AdamW's step", expected("growth", states_bytes, "three-linear-adamw")):
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.step()
    with trial.stage("a second step", expected("allocated", held_bytes + states_bytes)):
        optimizer.zero_grad()
        y = model(x)
        loss = y.sum()
        loss.backward()
        optimizer.step()
    return trial.outcome()


def _peak(
    chain: LinearChain, here: GPUEnvironment, workspaces_bytes: int
) -> tuple[int, list[Difference]]:
    """Return the predicted peak of the backward pass, and why it is not the published one."""
    moments = chain.backward_moments(here.column_sum_bytes)
    last = len(chain.widths) - 1
    moment = max(moments, key=lambda name: moments[name])
    clone_bytes = moments[f"clone {last}"]
    differences = [
        workspaces_differ(workspaces_bytes, 2),
        Difference(
            moments[moment] - clone_bytes,
            f"on this GPU the peak is not in the last layer's matrix product, but at {moment!r}: "
            "more thread blocks share the sum of the bias's gradient, and need a larger buffer",
            "aten/src/ATen/native/cuda/Reduce.cuh",
        ),
    ]
    if chain.fused_bias:
        differences.append(
            Difference(
                -chain.bias_bytes(last),
                "the gradient of the last bias. nn.Linear sums it after both matrix products of "
                "the layer, when the clone of the expanded gradient, the peak, is gone. It was "
                "there at the published peak, as it is where the bias is added by an op of its "
                "own (experiment three-linear-peak)",
                "torch/csrc/autograd/engine.cpp, validate_outputs",
            )
        )
    return moments[moment] + workspaces_bytes, differences


@experiment(
    "three-linear-peak",
    lesson="05",
    question="With which program does the published peak come out to the byte?",
    source="001 §2.24",
    figures=("three-linear-peak",),
    conditions=Conditions(
        why="a layer that adds its bias by an op of its own, as x @ W.t() + b, has the gradient of "
        "the last bias (8192 B) before its matrix products, and with it the published peak",
    ),
)
def three_linear_peak() -> Outcome:
    """Train document 001's step again, with layers that add the bias in an op of their own."""
    return three_linear(fused_bias=False, name="three-linear-peak")


@experiment(
    "three-linear-inference",
    lesson="05",
    question="What does inference hold?",
    source="001 §2.3",
    figures=("three-linear-inference",),
)
def three_linear_inference() -> Outcome:
    """Run document 001's model without gradients: outputs but the last are dropped on the way."""
    trial = Trial("three-linear-inference")
    chain = LinearChain(BATCH, WIDTHS)
    workspace_bytes = trial.environment.linear_workspace_bytes()
    ends_bytes = chain.rows_bytes(WIDTHS[0]) + chain.rows_bytes(WIDTHS[-1])
    with trial.stage("parameters", expected("growth", chain.parameters_bytes)):
        model = linear_net(WIDTHS).to("cuda")
    with trial.stage("input", expected("growth", chain.rows_bytes(WIDTHS[0]))):
        x = torch.zeros(BATCH, WIDTHS[0]).to("cuda")
    with (
        trial.stage(
            "forward under no_grad",
            expected(
                "allocated",
                chain.parameters_bytes + ends_bytes + workspace_bytes,
                "three-linear-inference",
                differences=[workspaces_differ(workspace_bytes, 1)],
            ),
        ),
        torch.no_grad(),
    ):
        y = model(x)
    del y
    return trial.outcome()


# ---- Document 003's model ----

FP16_BATCH, FP16_WIDTH, FP16_APPLICATIONS = 10240, 1024, 2

_DOCUMENT_003 = Conditions(
    gpu="V100-16GB",
    torch_version="1.13",
    why="no workspace of cuBLAS is in its figures, so it was PyTorch 1.x; the 2 KiB that sum() "
    "took are those of a V100 (80 multiprocessors of 2048 threads), and its out-of-memory message "
    "is that of a V100 with 16 GB; Adam's loop was the default then",
)


def _cublas_came(here_bytes: int) -> Difference:
    return Difference(
        here_bytes,
        "cuBLAS's workspaces come out of the caching allocator since PyTorch 2.0; the document's "
        "PyTorch 1.x had none there",
        "aten/src/ATen/cuda/CublasHandlePool.cpp",
    )


@experiment(
    "fp16-linear",
    lesson="05",
    question="How often was the document's layer applied: 10 times, 3 times or 2?",
    source="003",
    figures=(
        "fp16-linear-params",
        "fp16-linear-input",
        "fp16-linear-forward",
        "fp16-linear-after-loss",
        "fp16-linear-after-backward",
        "fp16-linear-no-grad",
        "fp16-linear-adam",
    ),
    conditions=_DOCUMENT_003,
)
def fp16_linear(applications: int = FP16_APPLICATIONS) -> Outcome:
    """Run document 003's code. It applies the layer 10 times, its torchinfo table shows 3 rows.

    Args:
        applications: how often the layer is applied. Only 2 gives the published figures.
    """
    trial = Trial("fp16-linear", applications=applications)
    workspace_bytes = trial.environment.matmul_workspace_bytes()
    weight_bytes = block_bytes(tensor_bytes((FP16_WIDTH, FP16_WIDTH), "float16"))
    rows_bytes = block_bytes(tensor_bytes((FP16_BATCH, FP16_WIDTH), "float16"))
    outputs_bytes = repeated_linear_bytes(FP16_BATCH, FP16_WIDTH, applications)
    in_forward = [
        _cublas_came(workspace_bytes),
        Difference(
            (applications - FP16_APPLICATIONS) * rows_bytes,
            f"the layer is applied {applications} times here; the published memory is that of "
            f"{FP16_APPLICATIONS} times",
        ),
    ]
    in_all = [_cublas_came(2 * workspace_bytes)]

    with trial.stage("model", expected("growth", weight_bytes, "fp16-linear-params")):
        model = RepeatedLinear(applications, FP16_WIDTH).cuda()
    with trial.stage("inputs", expected("growth", rows_bytes, "fp16-linear-input")):
        inputs = torch.zeros((FP16_BATCH, FP16_WIDTH), dtype=torch.float16).cuda()
    with trial.stage(
        "forward",
        expected(
            "growth",
            outputs_bytes + workspace_bytes,
            "fp16-linear-forward",
            differences=in_forward,
        ),
    ):
        outputs = model(inputs)
    with trial.stage(
        "loss",
        expected(
            "allocated",
            weight_bytes + rows_bytes + outputs_bytes + SCALAR_BYTES + workspace_bytes,
            "fp16-linear-after-loss",
            differences=in_forward,
        ),
    ):
        loss = torch.sum(outputs)
    with trial.stage(
        "backward",
        expected(
            "allocated",
            2 * weight_bytes + 2 * rows_bytes + SCALAR_BYTES + 2 * workspace_bytes,
            "fp16-linear-after-backward",
            differences=in_all,
        ),
    ):
        loss.backward()
    with (
        trial.stage("forward under no_grad", expected("growth", 0, "fp16-linear-no-grad")),
        torch.no_grad(),
    ):
        outputs = model(inputs)
    with trial.stage(
        "Adam's step",
        expected("growth", state_bytes("adam", [weight_bytes]), "fp16-linear-adam"),
    ):
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.step()
    del outputs
    return trial.outcome()


_STATISTICS = {
    "Allocated memory": "allocated_bytes",
    "Active memory": "active_bytes",
    "GPU reserved memory": "reserved_bytes",
    "Non-releasable memory": "inactive_split_bytes",
    "Allocations": "allocation",
    "Active allocs": "active",
    "GPU reserved segments": "segment",
    "Non-releasable allocs": "inactive_split",
    "Oversize allocations": "oversize_allocations",
    "Oversize GPU segments": "oversize_segments",
}
"""Rows of torch.cuda.memory_summary() and where torch.cuda.memory_stats() has their numbers."""

_COLUMNS = {
    "Cur Usage": "current",
    "Peak Usage": "peak",
    "Tot Alloc": "allocated",
    "Tot Freed": "freed",
}


@experiment(
    "fp16-linear-memory-summary",
    lesson="05",
    question="What does every number of torch.cuda.memory_summary() say about a run?",
    source="003",
    figures=("fp16-linear-memory-summary",),
    conditions=_DOCUMENT_003,
)
def fp16_linear_memory_summary(
    applications: int = FP16_APPLICATIONS, foreach: bool = False
) -> Outcome:
    """Run document 003's code at one go, and read every number of the summary at its end.

    Args:
        applications: how often the layer is applied.
        foreach: how Adam's step works. PyTorch 1.x took one parameter after the other.
    """
    trial = Trial("fp16-linear-memory-summary", applications=applications, foreach=foreach)
    model = RepeatedLinear(applications, FP16_WIDTH).cuda()
    inputs = torch.zeros((FP16_BATCH, FP16_WIDTH), dtype=torch.float16).cuda()
    outputs = model(inputs)
    loss = torch.sum(outputs)
    loss.backward()
    with torch.no_grad():
        outputs = model(inputs)
    optimizer = torch.optim.Adam(model.parameters(), foreach=foreach)
    optimizer.step()
    stats = torch.cuda.memory_stats()
    del outputs
    trial.record(*_summary_findings(stats, _not_as_published(trial.environment)))
    return trial.outcome()


def _not_as_published(here: GPUEnvironment) -> str:
    """Why the summary cannot be the published one here; empty where it can."""
    buffers_bytes = here.total_sum_bytes(FP16_BATCH * FP16_WIDTH)
    if here.torch_version < (2, 0) and buffers_bytes == 2 * KIB:
        return ""
    return (
        "published for PyTorch 1.x, with no workspace of cuBLAS in the caching allocator, on a GPU "
        f"where sum() takes 2048 B; here it is PyTorch {here.rules}, and {buffers_bytes} B"
    )


def _summary_findings(stats: dict[str, int], note: str) -> list[Finding]:
    """Compare every number of the published summary with torch.cuda.memory_stats()."""
    published = figure("fp16-linear-memory-summary")
    findings = []
    for row, pools in published.value.items():
        statistic = _STATISTICS[row]
        for pool, numbers in pools.items():
            prefix = statistic if statistic.startswith("oversize") else f"{statistic}.{pool}"
            for (column, kind), number in zip(_COLUMNS.items(), numbers, strict=True):
                measured = stats[f"{prefix}.{kind}"]
                # memory_summary() cuts bytes to whole KiB; it does not round.
                in_kib = statistic.endswith("_bytes")
                findings.append(
                    Finding(
                        figure=published.id,
                        published=str(number),
                        unit="KiB, cut" if in_kib else "count",
                        source=published.source,
                        measured=measured // KIB if in_kib else measured,
                        part=f"{row}, {pool}, {column}",
                        note=note,
                    )
                )
    return findings
