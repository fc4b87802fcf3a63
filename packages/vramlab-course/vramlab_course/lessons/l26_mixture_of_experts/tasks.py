"""Exercise 26: what ranks keep of experts, what a layer keeps, a crowd, and experts that idle."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.tasks.batches import numbered_batch
from vramlab_course.tasks.gpus import GPU, NO_RESTS
from vramlab_course.tasks.readings import growth_bytes
from vramlab_course.tasks.repair import Repair, Run, room
from vramlab_course.tasks.results import on_host, require_close, to_host

T4 = GPU("T4", alloc_conf=NO_RESTS)


# trained_bytes: what training keeps on each rank, with experts divided


def _shapes(layers: int, width: int, inner: int, experts: int, ranks: int) -> list[tuple[int, ...]]:
    """Parameters of a rank: of attention, of the router, and of its experts, in each layer."""
    here = experts // ranks
    each = [(4, width, width), (experts, width), (here, inner, width), (here, width, inner)]
    return each * layers


def _measure_trained(layers: int, width: int, inner: int, experts: int, ranks: int) -> int:
    """Take a step of AdamW with a rank's parameters; keep them, gradients and states."""

    def train() -> object:
        parameters = [
            torch.zeros(shape, device="cuda", requires_grad=True)
            for shape in _shapes(layers, width, inner, experts, ranks)
        ]
        optimizer = torch.optim.AdamW(parameters)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        return parameters, optimizer

    return growth_bytes(train)


def _trained(
    layers: int,
    width: int,
    inner: int,
    experts: int,
    ranks: int,
    *,
    copies: int = 4,
    step_bytes: int = 512,
    all_divided: bool = False,
) -> int:
    """Return the answer or a mistaken one: for naming mistakes, not for grading."""
    shared = [4 * width * width, experts * width]
    parts = [experts // ranks * inner * width] * 2
    parts += [each // ranks for each in shared] if all_divided else shared
    blocks = (-(-4 * numbers // step_bytes) * step_bytes for numbers in parts)
    return copies * layers * sum(blocks)


def _divided(random: Random) -> list[Config]:
    cases: list[Config] = []
    for ranks in (1, 2, 4, 8):
        cases.append(
            {
                "layers": random.randrange(2, 6),
                # 16 * width**2 bytes of attention are never a multiple of 512.
                "width": 4 * random.randrange(11, 33, 2),
                "inner": 8 * random.randrange(17, 40),
                "experts": ranks * random.choice((2, 3)),
                "ranks": ranks,
            }
        )
    return cases


TRAINED = Predict(
    name="trained_bytes",
    points=4,
    minutes=15,
    visible=(
        {"layers": 2, "width": 64, "inner": 256, "experts": 8, "ranks": 1},
        {"layers": 4, "width": 128, "inner": 256, "experts": 8, "ranks": 4},
        {"layers": 3, "width": 40, "inner": 136, "experts": 6, "ranks": 2},
    ),
    hidden=_divided,
    measure=_measure_trained,
    gpu=T4,
    mistakes=of(
        _trained,
        Mistake(
            "You gave every rank all experts. Expert parallelism divides them among the ranks.",
            lambda **case: _trained(**{**case, "ranks": 1}),
        ),
        (
            "You divided everything by the ranks. Attention and router are replicated on every "
            "rank.",
            {"all_divided": True},
        ),
        Mistake(
            "You gave each rank a router for its own experts only. Its tokens choose among all "
            "experts.",
            lambda **case: (
                _trained(**case)
                - _router(**case)
                + _router(**{**case, "experts": case["experts"] // case["ranks"]})
            ),
        ),
        ("You left out the gradients, or one of AdamW's two states.", {"copies": 3}),
        (
            "You counted only the parameters. Training also needs gradients and optimizer states.",
            {"copies": 1},
        ),
        (
            "You left out the rounding: each tensor's block is a multiple of 512 bytes.",
            {"step_bytes": 1},
        ),
    ),
)


def _router(layers: int, width: int, experts: int, **_: int) -> int:
    return 4 * layers * (-(-4 * experts * width // 512) * 512)


# kept_bytes: what a forward pass of the layer leaves


def _measure_kept(tokens: int, width: int, inner: int, experts: int, top_k: int) -> int:
    from vramlab_course.lessons.l26_mixture_of_experts.moe import MoE, spread

    with torch.device("cuda"):
        layer = MoE(width, inner, experts, top_k)
        x = torch.zeros(tokens, width, requires_grad=True)
    chosen = spread(tokens, experts, top_k)
    with torch.no_grad():
        layer(x, chosen)  # cuBLAS has its workspace from here on
    return growth_bytes(lambda: layer(x, chosen))


def _kept(
    tokens: int,
    width: int,
    inner: int,
    experts: int,
    top_k: int,
    *,
    outputs: int = 2,
    hidden: int = 2,
    added: int = 1,
    indices: int = 3,
    index_bytes: int = 8,
    softmax: bool = True,
    chosen: bool = True,
    inputs: int = 0,
) -> int:
    """Return the answer, or a mistaken one.

    Args:
        tokens, width, inner, experts, top_k: as asked.
        outputs: of experts, one for each pair.
        hidden: tensors of the hidden layer.
        added: the layer's own output.
        indices: for each pair.
        index_bytes: of one.
        softmax: the router keeps it.
        chosen: the chosen scores are kept.
        inputs: the layer's input is counted.
    """

    def block(size_bytes: int) -> int:
        return -(-size_bytes // 512) * 512

    pairs = tokens * top_k
    router = softmax * block(4 * tokens * experts) + chosen * block(4 * pairs)
    router += indices * block(index_bytes * pairs)
    wide = experts * block(4 * pairs // experts * inner)
    narrow = block(4 * pairs * width)
    own = (added + inputs) * block(4 * tokens * width)
    return router + (1 + outputs) * narrow + hidden * wide + own


def _layers(random: Random) -> list[Config]:
    cases: list[Config] = []
    for top_k in (1, 2, 2, 3):
        experts = random.choice((4, 8, 12))
        cases.append(
            {
                "tokens": experts * random.randrange(20, 80),
                "width": 128 * random.randrange(1, 4),
                "inner": 128 * random.randrange(4, 9),
                "experts": experts,
                "top_k": top_k,
            }
        )
    return cases


KEPT = Predict(
    name="kept_bytes",
    points=4,
    minutes=20,
    visible=(
        {"tokens": 1024, "width": 256, "inner": 512, "experts": 8, "top_k": 2},
        {"tokens": 1024, "width": 256, "inner": 512, "experts": 16, "top_k": 2},
        {"tokens": 600, "width": 128, "inner": 384, "experts": 4, "top_k": 1},
        {"tokens": 480, "width": 256, "inner": 512, "experts": 8, "top_k": 3},
    ),
    hidden=_layers,
    measure=_measure_kept,
    gpu=T4,
    mistakes=of(
        _kept,
        Mistake(
            "You counted each token once. It is dispatched to top-k experts, and each saves its "
            "own copy.",
            lambda **case: _kept(**{**case, "top_k": 1}),
        ),
        Mistake(
            "You let every expert save every token. Each saves only the tokens dispatched to it.",
            lambda **case: _kept(**{**case, "top_k": case["experts"]}),
        ),
        (
            "You counted two tensors with a full-width row per token and expert. There are three: "
            "the tokens' copies, and the outputs, plain and weighted. What does index_add save?",
            {"outputs": 1},
        ),
        (
            "You counted the experts' hidden layer once. GELU saves its input, and the second "
            "product saves GELU's output.",
            {"hidden": 1},
        ),
        (
            "You counted three outputs of the experts. There are two, plain and weighted: which "
            "operation would save a third?",
            {"outputs": 3},
        ),
        ("You left out the layer's own output.", {"added": 0}),
        ("You counted the layer's input. It was allocated before.", {"inputs": 1}),
        (
            "You left out the router's softmax: one number per token and expert.",
            {"softmax": False},
        ),
        (
            "You left out the scores of the chosen experts, which weight their outputs.",
            {"chosen": False},
        ),
        (
            "You left out the router: its softmax, and the scores of the chosen experts.",
            {"softmax": False, "chosen": False},
        ),
        ("You used 4 bytes per index. PyTorch's indices are int64.", {"index_bytes": 4}),
        (
            "You counted two indices per pair of token and expert: the expert and the token. What "
            "about the index that sorts by expert?",
            {"indices": 2},
        ),
        (
            "You counted one index per pair of token and expert: the expert. What else does "
            "combine need to send an output back to its token?",
            {"indices": 1},
        ),
        (
            "You left out the indices: expert, pair and token, 8 bytes each per pair.",
            {"indices": 0},
        ),
    ),
)


# most_tokens: how many came to the fullest rank, told from what forward left


def _observe_ranks(counts: Sequence[int], width: int, inner: int) -> Observation:
    """Run one rank after the other, of which each sends `counts` of its pairs to the ranks."""
    grown = [_growth_of_rank(counts, rank, width, inner) for rank in range(len(counts))]
    tokens = sum(counts) // 2
    evidence = {"grown_bytes": grown, "tokens": tokens, "width": width, "inner": inner}
    return Observation(evidence, len(counts) * max(counts))


def _growth_of_rank(counts: Sequence[int], rank: int, width: int, inner: int) -> int:
    from vramlab.programs.alone import alone
    from vramlab_course.lessons.l26_mixture_of_experts.moe import ExpertParallelMoE

    ranks = len(counts)
    chosen = torch.repeat_interleave(torch.arange(ranks), torch.tensor(counts)).reshape(-1, 2)
    received = [counts[rank]] * ranks
    with T4.attached(), alone(ranks, rank):
        with torch.device("cuda"):
            layer = ExpertParallelMoE(width, inner, ranks)
            x = torch.zeros(len(chosen), width, requires_grad=True)
        with torch.no_grad():
            layer(x, chosen, received)  # cuBLAS has its workspace from here on
        return growth_bytes(lambda: layer(x, chosen, received))


def _most_tokens(
    grown_bytes: Sequence[int],
    tokens: int,
    width: int,
    inner: int,
    *,
    own: bool = True,
    hidden: int = 2,
    pairs: int = 2,
) -> int:
    """Return the answer, or a mistaken one."""
    each_bytes = 4 * (width + hidden * inner)
    came = pairs * tokens * len(grown_bytes)
    own_bytes = (sum(grown_bytes) - came * each_bytes) / len(grown_bytes) if own else 0
    return round((max(grown_bytes) - own_bytes) / each_bytes)


def _crowds(random: Random) -> list[Config]:
    cases: list[Config] = []
    for ranks in (2, 4, 4, 8):
        counts = [16 * random.randrange(4, 20) for _ in range(ranks)]
        counts[random.randrange(ranks)] += 16 * random.randrange(20, 60)
        width, inner = 128 * random.randrange(1, 3), 128 * random.randrange(3, 6)
        cases.append({"counts": counts, "width": width, "inner": inner})
    return cases


MOST = Diagnose(
    name="most_tokens",
    points=3,
    minutes=20,
    visible=(
        {"counts": [256, 256, 256, 256], "width": 128, "inner": 512},
        {"counts": [128, 640, 192, 64], "width": 128, "inner": 512},
        {"counts": [960, 64], "width": 256, "inner": 384},
    ),
    hidden=_crowds,
    observe=_observe_ranks,
    mistakes=of(
        _most_tokens,
        (
            "You counted everything as dispatched tokens. Every rank also saves activations of "
            "its own tokens.",
            {"own": False},
        ),
        (
            "You counted the experts' hidden layer once per dispatched token. It is saved before "
            "and after GELU.",
            {"hidden": 1},
        ),
        ("You sent each token to one expert. Here it goes to two.", {"pairs": 1}),
    ),
)


# moe: a layer in which every expert computes for every token

TOKENS, WIDTH, INNER = 1024, 64, 256
CROWDED = 6
"""The expert that twice as many tokens choose as others; hardly any choose those before it."""

MOST_FLOPS = 2
"""Times those that are needed: room for what is filled up, or computed again in backward."""


def _layer(run: Run, experts: int, top_k: int) -> tuple[Any, ...]:
    torch.manual_seed(26)
    x = (numbered_batch(3, TOKENS, WIDTH) - 0.5).requires_grad_()
    liked = torch.rand(TOKENS, experts, device="cuda")
    liked[:, CROWDED] += 0.2
    liked[:, :CROWDED] -= 10
    for few in range(CROWDED):  # so many tokens choose this expert: none, one, two, ...
        liked[100 * few : 100 * few + few, few] += 20
    scores = liked.softmax(-1).requires_grad_()
    up = (torch.randn(experts, INNER, WIDTH, device="cuda") / 8).requires_grad_()
    down = (torch.randn(experts, WIDTH, INNER, device="cuda") / 16).requires_grad_()
    return x, scores, up, down, top_k


def _moe(
    x: torch.Tensor, scores: torch.Tensor, up: torch.Tensor, down: torch.Tensor, top_k: int
) -> torch.Tensor:
    chosen = scores.topk(top_k).indices
    y = torch.zeros_like(x)
    for expert in range(len(up)):
        tokens = (chosen == expert).any(1).nonzero()[:, 0]
        hidden = torch.nn.functional.gelu(x[tokens] @ up[expert].T)
        answer = hidden @ down[expert].T * scores[tokens, expert, None]
        y = y.index_add(0, tokens, answer)
    return y


def _forward_and_backward(run: Run) -> torch.Tensor:
    y = run.program(*run.inputs)
    if not isinstance(y, torch.Tensor) or y.shape != run.inputs[0].shape:
        raise NotFixed("It has to return one tensor, as large as x.")
    y.square().sum().backward()
    return y.detach()


def _output_and_gradients(run: Run, returned: Any) -> dict[str, torch.Tensor]:
    found = {"the output": on_host(returned, "It has to return a tensor on the GPU.")}
    for name, tensor in zip(("x", "scores", "up", "down"), run.inputs[:4], strict=True):
        if tensor.grad is None:
            raise NotFixed(f"It fits, but {name} gets no gradient.")
        found[f"the gradient of {name}"] = to_host(tensor.grad)
    return found


def _same_layer(run: Run, expected: dict[str, torch.Tensor]) -> None:
    if run.times_the_flops > MOST_FLOPS:
        raise NotFixed(
            f"It fits, but takes {run.times_the_flops:.2f} times the FLOPs that each token's own "
            f"experts need; {MOST_FLOPS} times are allowed. Which experts still compute tokens "
            "that were not dispatched to them?"
        )
    for name, right in expected.items():
        message = f"It fits, but {name} is wrong."
        require_close(run.results[name], right, message)


def _where_it_ended(run: Run) -> str:
    experts = run.case["experts"]
    everybody_bytes = experts * 4 * TOKENS * INNER
    return (
        f"{run.ran_out}, with {format_bytes(torch.cuda.memory_allocated())} allocated. A hidden "
        f"layer of all {TOKENS:,} tokens takes {format_bytes(everybody_bytes // experts)}: how "
        f"many of them does your program allocate for {experts} experts, and how many does it "
        "need?"
    )


MOE = Fix(
    name="moe",
    points=4,
    minutes=25,
    visible=({"experts": 16, "top_k": 2},),
    hidden=lambda random: [
        {"experts": random.choice((12, 16, 20)), "top_k": top_k} for top_k in (1, 2)
    ],
    trial=Repair(
        gpu=GPU("T4", values=True),
        build=_layer,
        reference=_moe,
        call=_forward_and_backward,
        limit=room(4 * MIB),
        allocated_room_bytes=4 * MIB,
        ran_out=_where_it_ended,
        collect=_output_and_gradients,
        compare=_same_layer,
    ),
)

EXERCISE = Exercise(
    name="26_mixture_of_experts",
    module=__name__,
    tasks=(TRAINED, KEPT, MOST, MOE),
    core=("trained_bytes", "moe"),
)
