"""Adam's formula, and gradients from torch.autograd.grad."""

import torch


def train_head(model, inputs, targets):
    parameters = list(model[-1].parameters())
    means = [torch.zeros_like(each) for each in parameters]
    squares = [torch.zeros_like(each) for each in parameters]
    for step in range(1, 4):
        loss = model[-1](_body(model, inputs)) - targets
        gradients = torch.autograd.grad(loss.pow(2).mean(), parameters)
        with torch.no_grad():
            for parameter, gradient, mean, square in zip(
                parameters, gradients, means, squares, strict=True
            ):
                mean.mul_(0.9).add_(gradient, alpha=0.1)
                square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                corrected = (square / (1 - 0.999**step)).sqrt() + 1e-8
                parameter -= 0.01 * (mean / (1 - 0.9**step)) / corrected
    return model[-1].weight.data


def _body(model, inputs):
    with torch.no_grad():
        return model[:-1](inputs)
