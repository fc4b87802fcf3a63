"""Exercise 27: pages that answers share, what a token takes, few bits, and servers told apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from vramlab.cuda_rules.sizes import LARGE_SEGMENT_BYTES
from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, instead, of
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
from vramlab_course.tasks.results import items, on_host, require_close
from vramlab_course.tasks.snapshots import Trace, live, trace_of

T4 = GPU("T4")


# shared_bytes: several answers to one prompt, in pages


def _measure_shared(
    prompt: int, answers: int, new: int, page: int, layers: int, kv_heads: int, head_size: int
) -> int:
    """Let the answers fork from a request that has read the prompt, and write."""
    from vramlab_course.lessons.l27_serving.paged_cache import PagedCache

    enough = answers * (-(-(prompt + new) // page) + 1)
    cache = PagedCache(enough, page, layers, kv_heads, head_size)
    cache.grow("answer 0", prompt)
    for number in range(1, answers):
        cache.fork("answer 0", f"answer {number}")
    for number in range(answers):
        cache.grow(f"answer {number}", new)
    return cache.used_pages * cache.page_bytes


def _shared(
    prompt: int,
    answers: int,
    new: int,
    page: int,
    layers: int,
    kv_heads: int,
    head_size: int,
    *,
    shares: bool = True,
    tensors: int = 2,
    originals: int = 0,
) -> int:
    """Return the answer or a mistaken one: for naming mistakes, not for grading."""
    full = prompt // page if shares else 0
    count = full + answers * (-(-(prompt + new) // page) - full)
    count += originals if prompt % page else 0
    return count * page * layers * tensors * kv_heads * head_size * 2


def _prompts(random: Random) -> list[Config]:
    """Prompts that end with a page and within one, of few answers and of many."""
    cases: list[Config] = []
    for rest in (0, 1, 1, 1):
        page = random.choice((8, 16, 32))
        cases.append(
            {
                "prompt": page * random.randrange(3, 20) + rest * random.randrange(1, page),
                "answers": random.randrange(2, 9),
                "new": random.randrange(1, 100),
                "page": page,
                "layers": random.randrange(2, 20),
                "kv_heads": random.randrange(1, 9),
                "head_size": 8 * random.randrange(4, 17),
            }
        )
    return cases


_SIZES = {"layers": 32, "kv_heads": 8, "head_size": 128}

SHARED = Predict(
    name="shared_bytes",
    points=4,
    minutes=15,
    rule=lambda prompt, page, **_: prompt % page == 0,
    visible=(
        {"prompt": 160, "answers": 3, "new": 20, "page": 16, **_SIZES},
        {"prompt": 100, "answers": 4, "new": 14, "page": 16, **_SIZES},
        {"prompt": 1000, "answers": 8, "new": 120, "page": 32, **_SIZES},
    ),
    hidden=_prompts,
    measure=_measure_shared,
    gpu=T4,
    mistakes=of(
        _shared,
        (
            "You copied the whole prompt for each answer. Its full pages are stored once and "
            "shared.",
            {"shares": False},
        ),
        (
            "You kept the last page of the prompt in addition to its copies. Does the last answer "
            "that writes into it need a copy?",
            {"originals": 1},
        ),
        Mistake(
            "You let all answers share the last page of the prompt and start a new one. They "
            "continue writing in it, and each writes different tokens.",
            lambda prompt, answers, new, page, **sizes: (
                (-(-prompt // page) + answers * -(-new // page))
                * _shared(page, 1, 0, page, **sizes)
            ),
        ),
        Mistake(
            "You let each answer start with an empty page. It continues in the last page of the "
            "prompt, which is partly full.",
            lambda prompt, answers, new, page, **sizes: (
                (prompt // page + answers * -(-new // page)) * _shared(page, 1, 0, page, **sizes)
            ),
        ),
        Mistake(
            "You counted tokens. A partly full page takes as much memory as a full one.",
            lambda prompt, answers, new, page, **sizes: (
                (prompt + answers * new) * _shared(1, 1, 0, 1, **sizes)
            ),
        ),
        ("You counted only the keys or only the values. The KV cache stores both.", {"tensors": 1}),
    ),
)


# token_bytes: a token on each of several GPUs, by the kind of attention

KINDS = ("MHA", "GQA", "MQA", "MLA")


def _kept_heads(kind: str, heads: int, groups: int) -> int:
    return {"MHA": heads, "GQA": groups, "MQA": 1}[kind]


def _measure_token(
    kind: str,
    layers: int,
    heads: int,
    groups: int,
    head_size: int,
    latent: int,
    rotary: int,
    ranks: int,
) -> int:
    """Make a page of what a rank keeps, as it keeps it: whole heads, or the latent of all heads."""
    page = 512
    kept: list[torch.Tensor] = []

    def make() -> list[torch.Tensor]:
        for _ in range(layers):
            if kind == "MLA":
                kept.append(torch.empty((page, latent + rotary), dtype=torch.bfloat16, device=gpu))
            else:
                whole = -(-_kept_heads(kind, heads, groups) // ranks)
                shape = (2, page, whole, head_size)
                kept.append(torch.empty(shape, dtype=torch.bfloat16, device=gpu))
        return kept

    gpu = torch.device("cuda")
    return growth_bytes(make) // page


def _token(
    kind: str,
    layers: int,
    heads: int,
    groups: int,
    head_size: int,
    latent: int,
    rotary: int,
    ranks: int,
    *,
    tensors: int = 2,
    whole_heads: bool = True,
    cut_latent: bool = False,
    cut: bool = True,
) -> int:
    """Return the answer, or a mistaken one."""
    if kind == "MLA":
        return layers * (latent + rotary) * 2 // (ranks if cut_latent else 1)
    kept = _kept_heads(kind, heads, groups)
    parts = ranks if cut else 1
    heads_here = -(-kept // parts) if whole_heads else kept / parts
    return int(layers * tensors * heads_here * head_size * 2)


def _attentions(random: Random) -> list[Config]:
    """Each kind, on fewer GPUs than heads are kept and on more."""
    return [
        {
            "kind": kind,
            "layers": random.randrange(4, 40),
            "heads": 32,
            "groups": random.choice((2, 4, 8)),
            "head_size": random.choice((64, 96, 128)),
            "latent": 128 * random.randrange(2, 5),
            "rotary": random.choice((32, 64)),
            "ranks": ranks,
        }
        for kind in KINDS
        for ranks in (2, 16)
    ]


_LATENT = {"latent": 512, "rotary": 64}

TOKEN = Predict(
    name="token_bytes",
    points=4,
    minutes=15,
    visible=(
        {"kind": "MHA", "layers": 40, "heads": 40, "groups": 40, "head_size": 128, "ranks": 1}
        | _LATENT,
        {"kind": "GQA", "layers": 80, "heads": 64, "groups": 8, "head_size": 128, "ranks": 4}
        | _LATENT,
        {"kind": "GQA", "layers": 32, "heads": 32, "groups": 8, "head_size": 128, "ranks": 16}
        | _LATENT,
        {"kind": "MQA", "layers": 32, "heads": 32, "groups": 8, "head_size": 64, "ranks": 2}
        | _LATENT,
        {"kind": "MLA", "layers": 60, "heads": 128, "groups": 8, "head_size": 128, "ranks": 8}
        | _LATENT,
    ),
    hidden=_attentions,
    measure=_measure_token,
    gpu=GPU("T4", alloc_conf=NO_RESTS),
    mistakes=of(
        _token,
        (
            "You divided the latent among the GPUs. Each GPU computes the keys and values of its "
            "own heads from it, so each needs all of it.",
            {"cut_latent": True},
        ),
        (
            "You divided a head. With more GPUs than KV heads, several GPUs store the same head.",
            {"whole_heads": False},
        ),
        Mistake(
            "You counted query heads. The KV cache stores only the KV heads.",
            lambda **case: _token(**{**case, "groups": case["heads"]}),
        ),
        Mistake(
            "You counted one latent for keys and one for values. Both are computed from the same "
            "one.",
            lambda **case: _token(**case) * (2 if case["kind"] == "MLA" else 1),
        ),
        Mistake(
            "You left out the key that carries the position. It is cached beside the latent.",
            lambda **case: _token(**{**case, "rotary": 0}),
        ),
        (
            "You gave every GPU all heads. With tensor parallelism each GPU has its own.",
            {"cut": False},
        ),
        ("You counted only the keys or only the values. The KV cache stores both.", {"tensors": 1}),
    ),
)


# weights_bytes: matrices of few bits


def _measure_weights(
    embedding: Sequence[int], matrices: Sequence[Sequence[int]], bits: int, group: int
) -> int:
    from vramlab_course.lessons.l27_serving.weight_only import WeightOnlyLinear

    def make() -> list[Any]:
        kept: list[Any] = [torch.zeros(*embedding, dtype=torch.float16, device="cuda")]
        for shape in matrices:
            kept.append(WeightOnlyLinear(torch.zeros(*shape, device="cuda"), bits, group))
        return kept

    return growth_bytes(make)


def _weights(
    embedding: Sequence[int],
    matrices: Sequence[Sequence[int]],
    bits: int,
    group: int,
    *,
    step_bytes: int = 512,
    scale_bytes: int = 2,
    whole_groups: bool = False,
    groups_of: str = "each row",
    embedded: bool = True,
    embedding_bytes: int = 2,
    each_quantized: bool = False,
) -> int:
    """Return the answer, or a mistaken one.

    Args:
        embedding, matrices, bits, group: as asked.
        step_bytes: of the allocator's blocks.
        scale_bytes: of a scale, or of a scale and a zero point.
        whole_groups: the last group of a row has no scale where it is short.
        groups_of: where groups lie: in "each row", "each column" or "the matrix", or each row is
            "one".
        embedded: the embedding is counted.
        embedding_bytes: of one of its numbers.
        each_quantized: the embedding has few bits, too.
    """

    def block(size_bytes: int) -> int:
        return -(-size_bytes // step_bytes) * step_bytes

    def quantized(rows: int, columns: int) -> int:
        groups = {
            "each row": rows * (columns // group if whole_groups else -(-columns // group)),
            "each column": columns * -(-rows // group),
            "the matrix": -(-rows * columns // group),
            "one": rows,
        }[groups_of]
        return block(rows * columns * bits // 8) + block(groups * scale_bytes)

    rows, columns = embedding
    first = block(rows * columns * embedding_bytes)
    if each_quantized:
        first = quantized(rows, columns)
    return first * embedded + sum(quantized(*shape) for shape in matrices)


def _models(random: Random) -> list[Config]:
    """Widths that groups divide and that they do not, in 4 bits and in 8."""
    cases: list[Config] = []
    for bits in (4, 8):
        for rest in (0, 8):
            width = 64 * random.randrange(3, 9) + rest
            inner = 64 * random.randrange(9, 20) + rest
            cases.append(
                {
                    "embedding": [random.randrange(500, 1500), width],
                    "matrices": [[width, width], [inner, width], [inner, width]],
                    "bits": bits,
                    "group": random.choice((32, 64)),
                }
            )
    return cases


def _has_rests(matrices: Sequence[Sequence[int]], group: int, **_: object) -> bool:
    return any(columns % group for _, columns in matrices)


WEIGHTS = Predict(
    name="weights_bytes",
    points=3,
    minutes=15,
    rule=_has_rests,
    visible=(
        {
            "embedding": [1000, 256],
            "matrices": [[256, 256], [1024, 256], [256, 1024]],
            "bits": 4,
            "group": 128,
        },
        {"embedding": [999, 200], "matrices": [[200, 200]], "bits": 8, "group": 64},
        {"embedding": [999, 200], "matrices": [[200, 200], [600, 200]], "bits": 4, "group": 64},
    ),
    hidden=_models,
    measure=_measure_weights,
    gpu=GPU("T4", alloc_conf=NO_RESTS),
    mistakes=of(
        _weights,
        ("You left out the scales: one per group of each row.", {"scale_bytes": 0}),
        (
            "You counted 4 bytes per scale, or a zero point beside it. Here a group has one "
            "float16 scale and nothing else.",
            {"scale_bytes": 4},
        ),
        (
            "You let groups continue from one row into the next. What happens at the end of a row "
            "whose length is not a multiple of the group size?",
            {"groups_of": "the matrix"},
        ),
        (
            "You laid the groups along the columns. Along which dimension do numbers share a "
            "scale?",
            {"groups_of": "each column"},
        ),
        (
            "You counted one scale per row. How many numbers share one?",
            {"groups_of": "one"},
        ),
        ("You left out the embedding. It is on the GPU, too.", {"embedded": False}),
        ("You counted a float32 embedding. What is its dtype here?", {"embedding_bytes": 4}),
        (
            "You left out the last group of a row, which is not full. It needs a scale, too.",
            {"whole_groups": True},
        ),
        (
            "You quantized the embedding as well. Here it stays in float16.",
            {"each_quantized": True},
        ),
        (
            "You counted a byte per number. Two 4-bit numbers share one.",
            {"bits": 8},
        ),
        (
            "You rounded the sum. Numbers and scales are two tensors, and each block is a multiple "
            "of 512 bytes.",
            {"step_bytes": 1},
        ),
    ),
)


# which_server: told from what came and went

SERVERS = ("reserves", "copies", "pages", "pages, forgets")
TOKEN_BYTES = 512
PAGE = 16


def _empty(tokens: int) -> torch.Tensor:
    return torch.empty(tokens * TOKEN_BYTES, dtype=torch.uint8, device="cuda")


def _observe_server(server: str, lengths: Sequence[int], longest: int) -> Observation:
    """Serve requests one token at a time, in one of the ways, until all are done."""

    def serve() -> list[list[torch.Tensor]]:
        kept: dict[int, list[torch.Tensor]] = {}
        forgotten = []
        for step in range(max(lengths) + 1):
            for request, length in enumerate(lengths):
                if step == length:
                    done = kept.pop(request)
                    if server == "pages, forgets":
                        forgotten.append(done)
                    del done
                elif step < length:
                    held = kept.setdefault(request, [])
                    _write(server, held, step, longest)
        return forgotten

    trace = trace_of(serve)
    evidence = {
        "trace": trace,
        "page_bytes": PAGE * TOKEN_BYTES,
        "longest_bytes": longest * TOKEN_BYTES,
    }
    return Observation(evidence, server)


def _write(server: str, held: list[torch.Tensor], step: int, longest: int) -> None:
    """Make room for one more token of a request that has `step` of them."""
    if server == "reserves":
        if not step:
            held.append(_empty(longest))
    elif server == "copies":
        held[:] = [torch.cat([*held, _empty(1)])] if held else [_empty(1)]
    elif step % PAGE == 0:
        held.append(_empty(PAGE))


def _server(
    trace: Trace, page_bytes: int, longest_bytes: int, *, by_end: bool = True, largest: bool = False
) -> str:
    """Return the answer, or a mistaken one."""
    sizes = {entry["size"] for entry in trace}
    if sizes == {longest_bytes} or (largest and longest_bytes in sizes):
        return "reserves"
    if sizes != {page_bytes}:
        return "copies"
    return "pages, forgets" if by_end and live(trace) else "pages"


def _servers(random: Random) -> list[Config]:
    cases: list[Config] = []
    for server in (*SERVERS, "copies", "pages"):
        lengths = [random.randrange(17, 60) for _ in range(random.randrange(2, 5))]
        # One that is copied until it is as long as the longest.
        lengths.append(64 if server == "copies" else random.choice((64, 50)))
        cases.append({"server": server, "lengths": lengths, "longest": 64})
    return cases


SERVER = Diagnose(
    name="which_server",
    points=3,
    minutes=15,
    visible=tuple({"server": server, "lengths": [20, 64, 33], "longest": 64} for server in SERVERS),
    hidden=_servers,
    observe=_observe_server,
    gpu=T4,
    mistakes=of(
        _server,
        (
            "You did not check what is still allocated at the end, when all requests are done.",
            {"by_end": False},
        ),
        (
            "You took any block as large as the longest sequence as a reserved one. A cache that "
            "is copied as it grows can become that large, too.",
            {"largest": True},
        ),
        Mistake(
            "You answered paging for a cache that is copied. With paging, all pages have the same "
            "size.",
            instead(_server, {"copies": "pages"}),
        ),
    ),
)


# serve: a server that reserves the longest text for everybody, and lets go of nothing

TOKENS = 64
"""That come at a time."""
WIDTH = 256
CHUNK_BYTES = 4 * TOKENS * WIDTH
"""Keys of so many tokens, or values."""
LONGEST = 32
"""Of a request, in such pieces."""

ROOM_BYTES = 12 * MIB
"""What a server may allocate besides: to gather keys and values, or for unused pages of a pool."""

Load = Callable[[int, int], "tuple[torch.Tensor, torch.Tensor, torch.Tensor]"]
Requests = Sequence[tuple[int, int]]
"""The step in which each arrives, and how many pieces it has."""


def _requests(run: Run, requests: Requests) -> tuple[Any, ...]:
    def load(request: int, piece: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        run.noted.append((request, piece))
        keys = numbered_batch(17 * request + piece, TOKENS, WIDTH)
        return keys[-1:].clone(), keys, keys.flip(1)

    return [tuple(request) for request in requests], LONGEST, run.ours(load)


def _in_order(requests: Requests) -> list[tuple[int, int]]:
    """Give each request and piece in the order in which they come: step by step."""
    return [
        (request, step - arrival)
        for step in range(max(arrival + length for arrival, length in requests))
        for request, (arrival, length) in enumerate(requests)
        if 0 <= step - arrival < length
    ]


def _serve(requests: Requests, longest: int, load: Load) -> list[torch.Tensor]:
    kept: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    outputs: dict[int, torch.Tensor] = {}
    for request, piece in _in_order(requests):
        query, key, value = load(request, piece)
        kept.setdefault(request, []).append((key, value))
        del key, value
        if piece == requests[request][1] - 1:
            keys, values = map(torch.cat, zip(*kept.pop(request), strict=True))
            outputs[request] = (query @ keys.T / WIDTH**0.5).softmax(-1) @ values
            del keys, values
    return [outputs[request] for request in range(len(requests))]


def _where_it_ended(run: Run) -> str:
    request, piece = run.noted[-1] if run.noted else (0, 0)
    held_bytes = torch.cuda.memory_allocated()
    come_bytes = 2 * CHUNK_BYTES * len(run.noted)
    said = (
        f"{run.ran_out} with piece {piece + 1} of request {request}, with "
        f"{format_bytes(held_bytes)} allocated. "
    )
    if held_bytes > come_bytes + 8 * CHUNK_BYTES * LONGEST:  # cuBLAS's workspace, and outputs
        return said + (
            f"The KV cache of all pieces so far takes {format_bytes(come_bytes)}. What is the "
            "rest for?"
        )
    return said + "Which variable still references the keys and values of a finished request?"


def _outputs(run: Run, returned: Any) -> list[torch.Tensor]:
    what = "a list with the output of each request"
    found = items(returned, len(run.case["requests"]), what)
    return [on_host(output, f"It has to return {what}, tensors on the GPU.") for output in found]


def _same_outputs(run: Run, expected: list[torch.Tensor]) -> None:
    for request, (_, length) in enumerate(run.case["requests"]):
        pieces = [piece for number, piece in run.noted if number == request]
        if pieces != list(range(length)):
            raise NotFixed(
                f"It fits, but does not load each of the {length} pieces of request {request} "
                "once and in order."
            )
    for found, (request, piece) in zip(run.noted, _in_order(run.case["requests"]), strict=True):
        if found != (request, piece):
            raise NotFixed(
                f"It fits, but loads piece {found[1]} of request {found[0]} although piece "
                f"{piece} of request {request} is next. Requests are served while they arrive, "
                "step by step."
            )
    for request, (found, right) in enumerate(zip(run.results, expected, strict=True)):
        message = f"It fits, but the output of request {request} is wrong."
        require_close(found, right, message)


def _arriving(random: Random) -> list[list[int]]:
    """Return requests that come one after the other; most are short, and one is the longest."""
    lengths = [random.randrange(2, 14) for _ in range(random.randrange(48, 53))]
    lengths[random.randrange(len(lengths))] = LONGEST
    return _one_a_step(lengths)


def _one_a_step(lengths: Sequence[int]) -> list[list[int]]:
    return [[step, length] for step, length in enumerate(lengths)]


_SHORT = (5, 9, 3, 12, 7, 2, 11, 6, 13, 4, 8, 12, 3, 10, 9, 5, 13, 6, 8, 11)

SERVE = Fix(
    name="serve",
    points=4,
    minutes=25,
    visible=({"requests": _one_a_step((*_SHORT, LONGEST, *reversed(_SHORT)))},),
    hidden=lambda random: [{"requests": _arriving(random)} for _ in range(2)],
    trial=Repair(
        gpu=T4.but(values=True),
        build=_requests,
        reference=_serve,
        # Pools of pages want a segment more than lists of them, for what they gather.
        limit=room(LARGE_SEGMENT_BYTES),
        allocated_room_bytes=ROOM_BYTES,
        ran_out=_where_it_ended,
        collect=_outputs,
        compare=_same_outputs,
    ),
)

EXERCISE = Exercise(
    name="27_serving",
    module=__name__,
    tasks=(SHARED, TOKEN, WEIGHTS, SERVER, SERVE),
    core=("token_bytes", "serve"),
)
