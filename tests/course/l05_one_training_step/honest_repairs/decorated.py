"""A decorator, functools.wraps and inference mode."""

import functools

import torch


def without_graph(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        with torch.no_grad():
            return function(*args, **kwargs)

    return call


@without_graph
def score_of(model, held_out):
    return model(held_out).square().mean()


def step_of(model, optimizer, batch):
    model(batch).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def train(model, optimizer, load, held_out, steps):
    scores = torch.empty(steps, device="cuda")
    for step in range(steps):
        step_of(model, optimizer, load(step))
        scores[step] = score_of(model, held_out)
        print(score_of.__name__, f"{scores[step]:.4f}")
    return scores
