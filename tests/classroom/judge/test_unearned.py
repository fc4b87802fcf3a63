"""Points for nothing: attacks on repairs and workshops, through the judge's own job.

A file of `unearned/` is an answer that does not do what is asked for. Its docstring says how it
means to get away with it, and part of the message that the judge shows.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from repair_programs import our_own_runs_once, solution_source

from vramlab_classroom.judge import jobs
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.task import Fix

__all__ = ["our_own_runs_once"]
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("our_own_runs_once")]

FILES = sorted((Path(__file__).parent / "unearned").glob("*/*.py"))


def task_of(exercise: str, source: str) -> Fix:
    """The task whose name an answer binds."""
    (task,) = (
        task
        for task in find_exercise(exercise).tasks
        if isinstance(task, Fix)
        and (f"\ndef {task.name}(" in source or f"\nclass {task.name}:" in source)
    )
    return task


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_point_is_given(path: Path) -> None:
    source = path.read_text()
    (says,) = re.findall(r"(?m)^says: (.*)$", source)
    task = task_of(path.parent.name, source)
    replies = (jobs._trial(task, source, case) for case in task.visible)
    assert says in next((reply["problem"] for reply in replies if "problem" in reply), "")


SAVED_IN_FLOAT16 = """
import torch

{solution}

solved = {name}


def {name}(*inputs):
    def pack(tensor):
        is_activation = tensor.is_floating_point() and tensor.grad_fn is not None
        return tensor.half() if is_activation else tensor

    def unpack(saved):
        return saved.float() if saved.dtype == torch.float16 else saved

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return solved(*inputs)
"""


@pytest.mark.parametrize(
    "exercise",
    [
        "08_what_operators_save",
        "10_batch_size",
        "14_gradient_checkpointing",
        "23_capstone",
        "26_mixture_of_experts",
        "29_compiled_programs",
    ],
)
def test_saving_in_two_bytes_changes_gradients(exercise: str) -> None:
    """By less than 0.1 %, which a tolerance must not hide."""
    task = next(task for task in find_exercise(exercise).tasks if isinstance(task, Fix))
    solution = solution_source(find_exercise(exercise), task)
    source = SAVED_IN_FLOAT16.format(solution=solution, name=task.name)
    reply = jobs._trial(task, source, task.visible[0])
    assert "tolerance" in reply["problem"]


PRODUCTS = {
    "addbmm": "torch.addbmm(x.new_zeros(len(x), len(w)), x[None], w.T[None])",
    "addmm_": "x.new_zeros(len(x), len(w)).addmm_(x, w.T)",
    "baddbmm_": "x.new_zeros(1, len(x), len(w)).baddbmm_(x[None], w.T[None])[0]",
    "mv": "torch.stack([torch.mv(x, row) for row in w], 1)",
    "conv1d": "F.conv1d(x.T[None], w[:, :, None])[0].T",
    "bilinear": "F.bilinear(x, x.new_ones(len(x), 1), w[:, :, None])",
    "einsum": "torch.einsum('rk,nk->rn', x, w)",
    "outer products": (
        "functools.reduce(lambda y, k: torch.addr(y, x[:, k], w[:, k]), "
        "range(x.shape[1]), x.new_zeros(len(x), len(w)))"
    ),
    "multiply and add": (
        "functools.reduce(lambda y, k: torch.addcmul(y, x[:, k, None], w[:, k]), "
        "range(x.shape[1]), x.new_zeros(len(x), len(w)))"
    ),
    "element by element": (
        "torch.cat([(x[:, None] * row[None]).sum(-1) for row in w.split(1)], 1)"
    ),
}
"""Products of rows and a weight, written so that a judge might not count them."""

LAYERS_TWICE = """
import functools
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return {product}

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient @ w, gradient.T @ x
"""

OFFLOADED = """
def layers(x, *weights):
    for w in weights:
        x = Product.apply(x, w).relu()
    return x


def train_step(model, x):
    weights = list(model.parameters())
    for first in range(0, len(weights), 3):
        x = checkpoint(layers, x, *weights[first : first + 3], use_reentrant=False)
    x.square().mean().backward()
"""

COMPILED = """
def block_of(x, scale, gate, up, down):
    y = scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
    return x + Product.apply(F.silu(Product.apply(y, gate)) * Product.apply(y, up), down)


def train_step(model, x):
    for b in model:
        weights = b.scale, b.gate.weight, b.up.weight, b.down.weight
        x = checkpoint(block_of, x, *weights, use_reentrant=False)
    x.square().mean().backward()
"""


@pytest.mark.parametrize("product", PRODUCTS)
def test_layers_that_run_twice_are_counted_whatever_multiplies(product: str) -> None:
    source = LAYERS_TWICE.format(product=PRODUCTS[product]) + OFFLOADED
    task = task_of("17_offloading", source)
    reply = jobs._trial(task, source, task.visible[0])
    assert "it recomputes layers" in reply.get("problem", reply)


@pytest.mark.parametrize("product", ["addbmm", "addmm_", "conv1d"])
def test_products_that_run_twice_are_counted_whatever_multiplies(product: str) -> None:
    source = LAYERS_TWICE.format(product=PRODUCTS[product]) + COMPILED
    task = task_of("29_compiled_programs", source)
    reply = jobs._trial(task, source, task.visible[0])
    assert "it recomputes products" in reply.get("problem", reply)


@pytest.mark.parametrize("product", ["addbmm", "mv", "addmm_", "conv1d", "bilinear"])
def test_products_on_the_host_are_counted_whatever_multiplies(product: str) -> None:
    source = LAYERS_TWICE.format(product=PRODUCTS[product]) + (
        OFFLOADED.replace(
            "    weights = list", "    model.cpu()\n    x = x.cpu()\n    weights = list"
        )
        + "    model.cuda()\n    for p in model.parameters():\n        p.grad = p.grad.cuda()\n"
    )
    task = task_of("17_offloading", source)
    reply = jobs._trial(task, source, task.visible[0])
    assert "It computes on the host" in reply.get("problem", reply)
