"""Values on the native engine: those of the portable one, by the same shadows."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from vramlab import catalogue, native
from vramlab.gpu import VirtualGPU
from vramlab.native.builds import Build
from vramlab.native.launch import environment

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def build() -> Build:
    try:
        return native.find(str(torch.__version__).partition("+")[0])
    except native.NativeEngineError as error:
        pytest.skip(str(error))


def run(build: Build, program: str) -> Any:
    """What a program assigns to `answer`, with values kept."""
    text = f"""
import json, math, torch
from vramlab.native.values import KnownValues
with KnownValues() as values:
{textwrap.indent(textwrap.dedent(program), "    ")}
print(json.dumps(answer), flush=True)
import time
time.sleep(0.2)  # autograd's thread frees what PyTorch 2.15 keeps of Python, before Python ends
"""
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=environment(build, catalogue.find("H200"), 1),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_small_tensors_are_as_on_the_host(build: Build) -> None:
    """The programs of the portable engine's test, but for what is inside of a transform."""
    program = """
    from tests.vramlab.gpu.test_shadows import SAME
    answer = {}
    for name, program in SAME.items():
        if name == "vmap":
            continue
        expected = program(torch.tensor([3, 1, 2, 2]))
        found = program(torch.tensor([3, 1, 2, 2], device="cuda"))
        if found != expected:
            answer[name] = f"{found} for {expected}"
    answer["reads"] = sum(values.reads.values())
    """
    assert run(build, program) == {"reads": 0}


def test_masks_choose_what_they_choose(build: Build) -> None:
    """Known ones by what they hold; others all, also below the function mode, and with a note."""
    program = """
    m = torch.tensor([[True, False, True], [False, False, True]], device="cuda")
    h = torch.randn(2, 3, 4, device="cuda", requires_grad=True)
    y = h[m]
    y.sum().backward()
    answer = [list(y.shape), list(h.grad.shape), m.sum().item(), m.nonzero().tolist()]
    answer.append(sum(values.reads.values()))
    guess = torch.rand(2, 3, device="cuda") > 0.5
    z = h[guess]
    z.sum().backward()
    answer += [list(z.shape), guess.nonzero().shape[0]]
    answer.append(list(h.masked_select(guess[..., None]).shape))
    answer.append([what for what, _ in values.reads])
    """
    assert run(build, program) == [
        *([3, 4], [2, 3, 4], 3, [[0, 0], [0, 2], [1, 2]], 0),
        *([6, 4], 6, [24]),
        ["shape of nonzero() (as if all were chosen)"] * 4,  # by line
    ]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_places_of_sparse_tensors_are_counted(build: Build) -> None:
    """Known ones by what they hold; of others each entry has its own, as in a gradient's copy."""
    program = """
    at, entries = torch.tensor([[1, 4, 1, 2], [0, 3, 0, 0]]).cuda(), torch.randn(4, 2).cuda()
    answer = [torch.sparse_coo_tensor(at[:1], entries, (5, 2)).coalesce()._nnz()]
    answer.append(torch.sparse_coo_tensor(at, entries, (5, 4, 2)).coalesce()._nnz())
    answer.append(sum(values.reads.values()))
    at, ones = (torch.randn(2, 7, device="cuda") * 9).long(), torch.ones(7, device="cuda")
    answer.append(torch.sparse_coo_tensor(at, ones, (9, 9)).coalesce()._nnz())
    embedding = torch.nn.Embedding(10_000, 64, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(embedding.parameters())
    embedding(torch.arange(300).cuda()).sum().backward()
    optimizer.step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    answer.append(embedding.weight.grad.coalesce()._nnz())
    answer.append(torch.cuda.max_memory_allocated() - before < 2**20)
    answer.append([what for what, _ in values.reads])
    """
    note = "shape of coalesce() (as if all were chosen)"
    assert run(build, program) == [3, 3, 0, 7, 300, True, [note] * 3]  # by line


def test_the_gradient_of_a_product_looks_for_zeros(build: Build) -> None:
    """Without zeros it takes the result by the input, and that times the gradient: 1 MiB each."""
    program = """
    x = torch.ones(512, 512, device="cuda", requires_grad=True)
    x.prod().backward()
    answer = [torch.cuda.max_memory_allocated(), sum(values.reads.values())]
    """
    # 3 MiB, and blocks of 512 for the product and its gradient
    assert run(build, program) == [3 * 2**20 + 1024, 0]


def test_what_is_not_known_is_answered_as_on_the_portable_engine(build: Build) -> None:
    program = """
    import numpy
    from tests.vramlab.gpu.test_shadows import ASSERTS
    x = torch.rand(3, device="cuda")
    for line in ASSERTS.values():
        exec(compile(line, "program.py", "exec"), {"x": x, "mask": x > 0.5})
    loss = x.sum().item()
    answer = [str(loss), math.isfinite(loss), bool(numpy.isfinite(loss * 2)), bool((x > 1).any())]
    answer += [str(float(x.mean())), str(x.tolist()[1]), torch.equal(x, x + 1)]
    answer += [torch.isfinite(x).all().item(), torch.isnan(x).any().item()]
    answer += [torch.equal(x, torch.ones(3, device="cuda"))]
    """
    expected = ["nan", True, True, False, "nan", "nan", True, True, False, False]
    assert run(build, program) == expected


def test_what_comes_to_the_host_is_not_what_lies_in_memory(build: Build) -> None:
    """A freed block holds old bytes; a large storage may hold what was copied to it."""
    program = """
    known, data = torch.tensor([1.0, 2.0], device="cuda"), torch.arange(2.0**15)
    large = data.cuda()
    old = torch.full((4,), 7.0, device="cuda").mul_(2)
    del old
    x = torch.rand(4, device="cuda")
    host, part, one = torch.ones(4), torch.ones(4), torch.ones(4)
    host.copy_(x)
    part[1:3] = x[:2]
    one[0] = x.sum()
    answer = [each.tolist() for each in (x.cpu(), x.to("cpu"), host, part, known.cpu())]
    answer += [str(one.tolist()), str(x[0].cpu().item()), torch.equal(large.cpu(), data)]
    answer.append(sorted(what for what, _ in values.reads))
    """
    zeros = [0.0] * 4
    assert run(build, program) == [
        *(zeros, zeros, zeros, [1.0, 0.0, 0.0, 1.0], [1.0, 2.0]),
        *("[nan, 1.0, 1.0, 1.0]", "nan", True),
        ["copy_()", "cpu()", "cpu()", "setitem()", "setitem()", "to()"],  # by line
    ]


def test_what_is_printed_chooses_nothing(build: Build) -> None:
    """PyTorch selects elements that are not 0, to find how wide they are."""
    program = """
    text = repr(torch.rand(4, device="cuda"))
    answer = [text.startswith("tensor("), [what for what, _ in values.reads if "shape" in what]]
    """
    assert run(build, program) == [True, []]


def test_functions_take_operands_by_keyword(build: Build) -> None:
    """As torch.nn.init passes them on: of a weight that was filled, nothing is known then."""
    program = """
    weight = torch.ones(3, device="cuda")
    torch.nn.init.normal_(weight, 0.0, 0.02)
    answer = [str(weight.tolist()[0]), torch.full_like(input=weight, fill_value=2.0).tolist()]
    torch.nn.init.constant_(weight, 3.0)
    answer += [torch.equal(input=weight, other=weight + 1)]
    """
    assert run(build, program) == ["nan", [2.0] * 3, True]


def test_what_cpp_changes_is_not_known_any_more(build: Build) -> None:
    """Gradients that the engine adds up, and an error on the host, which no program sees."""
    program = """
    w = torch.zeros(3, device="cuda", requires_grad=True)
    w.grad = torch.zeros(3, device="cuda")
    answer = [w.grad.tolist()]
    (w * torch.randn(3, device="cuda")).sum().backward()
    answer.append(str(w.grad[0].item()))
    x, index = torch.tensor([1, 2]).cuda(), torch.tensor([7]).cuda()
    answer.append([x.index_select(0, index).shape[0], x.tolist()])
    """
    assert run(build, program) == [[0.0] * 3, "nan", [1, [1, 2]]]


def peaks_by_positions() -> list[int]:
    """What a model takes for positions and masks that decide whether it makes a mask."""
    config = GPT2Config(
        n_layer=1, n_head=2, n_embd=32, vocab_size=64, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config).cuda()
    ids = torch.zeros(2, 64, dtype=torch.long, device="cuda")
    one = torch.arange(64, device="cuda")[None].expand(2, -1)
    two = torch.arange(32, device="cuda").repeat(2)[None].expand(2, -1)
    padded = torch.ones_like(ids)
    padded[0, 40:] = 0
    options: list[dict[str, Any]] = [
        *({}, {}, {"position_ids": one}, {"position_ids": two}),
        *({"attention_mask": torch.ones_like(ids)}, {"attention_mask": padded}),
    ]
    sizes = []
    for each in options:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with torch.no_grad():
            model(ids, **each)
        sizes.append(torch.cuda.max_memory_allocated() - before)
    return sizes[1:]  # without what first uses take


def test_branches_of_transformers_are_those_of_the_portable_engine(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Since PyTorch 2.15 each product has a workspace, of 32 MiB on an H200: more than masks take.
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:1")
    program = """
    from tests.vramlab.native.test_values import peaks_by_positions
    answer = [peaks_by_positions(), len(values.reads)]
    """
    with VirtualGPU("H200", on_value="nan"):
        expected = peaks_by_positions()
    assert len(set(expected)) > 1
    assert run(build, program) == [expected, 0]


def peak_of_encoder() -> int:
    """What an encoder takes in evaluation, where PyTorch has a path without gradients."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 1).cuda().eval()
    x = torch.zeros(8, 100, 64, device="cuda")
    padding = torch.zeros(8, 100, dtype=torch.bool)
    padding[1:, 60:] = True
    with torch.no_grad():
        encoder(x, src_key_padding_mask=padding.cuda())
    return torch.cuda.max_memory_allocated()


def test_encoders_take_their_fast_path(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function mode alone would make them take the slow one; padding is not cut off."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:1")
    program = """
    from tests.vramlab.native.test_values import peak_of_encoder
    answer = [peak_of_encoder(), *(what for what, _ in values.reads)]
    """
    with VirtualGPU("H200", on_value="nan"):
        expected = peak_of_encoder()
    note = "shape of nn.TransformerEncoder with padding (as if all were chosen)"
    assert run(build, program) == [expected, note]


def test_a_storage_is_found_from_any_view_of_it(build: Build) -> None:
    """Where its memory begins: of a part, of an empty part, of another dtype, of a transpose."""
    program = """
    from vramlab.report.evidence.history_watch import place_of_storage
    x = torch.zeros(6, 4, device="cuda")
    views = [x, x[3:, 1:], x[6:], x[2].view(torch.int16), x.t()[1], torch.nn.Parameter(x[1:])]
    start = x.untyped_storage().data_ptr()
    answer = [place_of_storage(each) == (0, start) for each in views]
    answer.append(place_of_storage(torch.empty(0, device="cuda")))
    """
    assert run(build, program) == [True] * 6 + [None]


def test_questions_leave_what_is_known_as_it_is(build: Build) -> None:
    program = """
    n = torch.tensor([1, 2, 3], device="cuda")
    asked = [n.dim(), list(n.size()), n.numel(), n.is_complex(), len(n), n.stride(0)]
    unknown = torch.randn(3, device="cuda")
    listed = torch.stack([unknown, n.float()])
    n.add_(1)
    answer = [asked, n.tolist(), list(listed.shape), n.mul_(unknown > 0).shape[0]]
    """
    assert run(build, program) == [[1, [3], 3, False, 3, 1], [2, 3, 4], [2, 3], 3]


def test_steps_of_optimizers_pass_unless_something_is_known_of_them(build: Build) -> None:
    program = """
    calls = []
    plain = KnownValues.__torch_function__

    def counting(self, func, types, args=(), kwargs=None):
        calls.append(func)
        return plain(self, func, types, args, kwargs)

    KnownValues.__torch_function__ = counting

    def step(make):
        weights = [torch.nn.Parameter(make(8, 8, device="cuda")) for _ in range(20)]
        for each in weights:
            each.grad = torch.ones_like(each)
        optimizer = torch.optim.SGD(weights, lr=0.5)
        calls.clear()
        optimizer.step()
        return len(calls), weights[0]

    def closure():
        calls.clear()
        return torch.ones(3, device="cuda").sum()

    unknown, _ = step(torch.empty)
    known, weight = step(torch.zeros)
    loss = torch.optim.SGD([weight], lr=0.5).step(closure)
    answer = unknown, known, weight[0, 0].item(), loss.item(), len(calls)
    """
    unknown, known, weight, loss, of_closure = run(build, program)
    assert unknown < 20 <= known  # gradients alone are 20
    assert weight == 0.0 - 0.5 * 1.0 - 0.5 * 1.0
    assert loss == 3.0
    assert of_closure >= 2


def test_ranks_compare_the_parameters_of_ddp(build: Build) -> None:
    """C++ copies the number of parameters to the GPU, gathers it, and reads it there."""
    program = """
    from vramlab.programs.alone import alone
    torch.cuda.init()
    with alone(2):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
    answer = [len(list(model.parameters())), sum(values.reads.values())]
    """
    assert run(build, program) == [2, 0]
