r"""Lesson 29: programs that torch.compile and CUDA graphs run, measured where that can be.

The portable engine runs compiled programs eagerly, without graphs of theirs. On a GPU, and on the
native engine with Triton, `run_all()` measures; elsewhere it gives what was recorded there:

    vramlab native setup --torch 2.13.0 --triton
    vramlab native run --torch 2.13.0 --gpu A100-40GB \
        -m vramlab_course.lessons.l29_compiled_programs.compiled

The second command writes the recording again, into `compiled.json` beside this file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

RECORDED = Path(__file__).with_name("compiled.json")

ROWS, WIDTH, INNER, BLOCKS = 8192, 1024, 4096, 4
WAYS = ("eager", "compiled", "compiled, CUDA graphs")
"""As it is; torch.compile(model); torch.compile(model, mode="reduce-overhead")."""
SHAPES = (1024, 2048, 4096, 8192)
"""Rows of the inputs that a model with CUDA graphs sees, one after the other."""


@dataclass(frozen=True)
class RecordedMoment:
    """What PyTorch counts after a piece of a program, in bytes."""

    name: str
    allocated_bytes: int
    peak_bytes: int
    """Most that was allocated in the piece."""
    reserved_bytes: int
    pool_bytes: int
    """Of what is reserved, the part in private pools, which graphs have."""


Runs = dict[str, tuple[RecordedMoment, ...]]


@dataclass(frozen=True)
class CompiledRuns:
    """All programs of this lesson, run."""

    by: str
    """Which GPU, engine and PyTorch ran them, and whether they were run now."""
    runs: Runs

    def __getitem__(self, name: str) -> dict[str, RecordedMoment]:
        """Return the moments of one program, by name."""
        return {moment.name: moment for moment in self.runs[name]}


class GatedBlock(nn.Module):
    """RMSNorm, SwiGLU and a residual connection, written out as language models have them."""

    def __init__(self, width: int = WIDTH, inner: int = INNER) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the block makes of x to x."""
        wide = x.float()
        normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        normed = self.scale * normed
        hidden = nn.functional.silu(self.gate(normed)) * self.up(normed)
        result: Tensor = x + self.down(hidden)
        return result


def gated_model(device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> nn.Sequential:
    """Make a model of blocks one after the other."""
    return nn.Sequential(*(GatedBlock() for _ in range(BLOCKS))).to(device, dtype)


def as_function(block: nn.Module) -> tuple[Callable[..., Tensor], list[nn.Parameter]]:
    """Return a module as a function of its input and its parameters, and the parameters."""
    named = dict(block.named_parameters())

    def function(x: Tensor, *parameters: Tensor) -> Tensor:
        made: Tensor = torch.func.functional_call(
            block, dict(zip(named, parameters, strict=True)), (x,)
        )
        return made

    return function, list(named.values())


def can_compile() -> bool:
    """Return whether compiled programs run here as on a GPU: on one, or on the native engine."""
    from vramlab.gpu import attached
    from vramlab.native.choice import is_inside

    if attached() is not None or not torch.cuda.is_available():
        return False
    return not is_inside() or find_spec("triton") is not None


def run_all() -> CompiledRuns:
    """Run all programs here, if they can be; else give what was recorded."""
    return measured() if can_compile() else recorded()


def recorded() -> CompiledRuns:
    """Return what was recorded."""
    data = json.loads(RECORDED.read_text(encoding="utf-8"))
    runs = {
        name: tuple(RecordedMoment(**moment) for moment in moments)
        for name, moments in data["runs"].items()
    }
    return CompiledRuns(data["by"], runs)


def measured() -> CompiledRuns:
    """Run all programs on the GPU that is there."""
    from vramlab.native.choice import is_inside

    engine = "the native engine" if is_inside() else "a real GPU"
    by = f"PyTorch {torch.__version__} on {engine}, {torch.cuda.get_device_name()}"
    runs: Runs = {way: _training(way) for way in WAYS}
    runs["a graph by hand"] = _graph_by_hand()
    runs["two graphs"] = _two_graphs(shared=False)
    runs["two graphs, one pool"] = _two_graphs(shared=True)
    runs["shapes"] = _shapes()
    return CompiledRuns(by, runs)


@contextmanager
def _piece(name: str, moments: list[RecordedMoment]) -> Iterator[None]:
    """Note what the body of the with statement does."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    yield
    torch.cuda.synchronize()
    pools = [
        segment["total_size"]
        for segment in torch.cuda.memory_snapshot()
        if tuple(segment["segment_pool_id"]) != (0, 0)
    ]
    moments.append(
        RecordedMoment(
            name,
            torch.cuda.memory_allocated(),
            torch.cuda.max_memory_allocated(),
            torch.cuda.memory_reserved(),
            sum(pools),
        )
    )


def _afresh() -> None:
    torch._dynamo.reset()
    torch.cuda.empty_cache()


def _made(way: str, model: nn.Module) -> Callable[[Tensor], Tensor]:
    if way == "eager":
        return model
    mode = "reduce-overhead" if way.endswith("graphs") else None
    compiled: Callable[[Tensor], Tensor] = torch.compile(model, mode=mode)
    return compiled


def _training(way: str) -> tuple[RecordedMoment, ...]:
    """Take five steps; the first compile and record, the last is a step as all later ones."""
    _afresh()
    moments: list[RecordedMoment] = []
    with _piece("model and input", moments):
        model = gated_model()
        x = torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        run = _made(way, model)
    for step in range(1, 6):
        torch.compiler.cudagraph_mark_step_begin()
        with _piece(f"forward {step}", moments):
            loss = run(x).float().square().mean()
        with _piece(f"backward {step}", moments):
            loss.backward()
            del loss
        model.zero_grad()
        x.grad = None
    return tuple(moments)


def _layers() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))).to("cuda")
    return model.requires_grad_(False), torch.zeros(ROWS, WIDTH, device="cuda")


def _capture(model: nn.Module, x: Tensor, pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        y = model(x)
    return graph, y


def _graph_by_hand() -> tuple[RecordedMoment, ...]:
    """Run four layers, capture them, replay, let go."""
    _afresh()
    moments: list[RecordedMoment] = []
    with _piece("model and input", moments):
        model, x = _layers()
    with _piece("eager", moments):
        model(x)
    with _piece("captured", moments):
        graph, y = _capture(model, x)
    with _piece("replayed", moments):
        graph.replay()
    with _piece("result let go", moments):
        del y
        torch.cuda.empty_cache()
    with _piece("graph let go", moments):
        del graph
        torch.cuda.empty_cache()
    return tuple(moments)


def _two_graphs(shared: bool) -> tuple[RecordedMoment, ...]:
    """Capture the same layers for two shapes, each with a pool of its own, or with one."""
    _afresh()
    moments: list[RecordedMoment] = []
    with _piece("model and input", moments):
        model, x = _layers()
    model(x)
    with _piece("first", moments):
        first, _ = _capture(model, x)
    with _piece("second", moments):
        second, _ = _capture(model, x[: ROWS // 2], first.pool() if shared else None)
    del first, second
    return tuple(moments)


def _shapes() -> tuple[RecordedMoment, ...]:
    """Let a model with CUDA graphs see one shape after the other, and the first again."""
    _afresh()
    moments: list[RecordedMoment] = []
    model = gated_model().requires_grad_(False)
    run = torch.compile(model, mode="reduce-overhead", dynamic=False)
    for number, rows in enumerate((*SHAPES, SHAPES[0])):
        x = torch.zeros(rows, WIDTH, dtype=torch.bfloat16, device="cuda")
        again = " again" if number == len(SHAPES) else ""
        with torch.no_grad(), _piece(f"{rows} rows{again}", moments):
            for _ in range(3):
                torch.compiler.cudagraph_mark_step_begin()
                run(x)
        del x
    return tuple(moments)


def main() -> int:
    """Write the recording again."""
    if not can_compile():
        print("Run this on a GPU, or by `vramlab native run` with Triton set up.")
        return 1
    now = measured()
    data = {"by": now.by, "runs": {name: [asdict(m) for m in ms] for name, ms in now.runs.items()}}
    RECORDED.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
