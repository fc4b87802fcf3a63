"""A small training, and lines added to it that leak: what lesson 30 hunts.

    training = LeakyTraining("checks")
    training.step()              # holds more after every step

Each line is one that people write: none of them looks like memory.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

FACTOR = 4
"""How many times as wide the middle of the network is."""
LENGTHS = tuple(range(512, 4097, 512))
"""Of texts: those that masks are made for."""


class LeakyTraining:
    """Trains a small network on the current GPU.

    Args:
        leak: what has been added, one of `LEAKS`.
        rows: of a batch.
        width: of its rows.

    Attributes:
        model: the network.
        kept: what the added line has put into a list.
        masks: the masks that it has made, by length.
        steps: how many steps have run.
    """

    def __init__(self, leak: str = "none", rows: int = 4096, width: int = 512) -> None:
        self.model = nn.Sequential(
            nn.Linear(width, FACTOR * width), nn.GELU(), nn.Linear(FACTOR * width, width)
        ).to("cuda")
        self.kept: list[Tensor] = []
        self.masks: dict[int, Tensor] = {}
        self.steps = 0
        self._shape = (rows, width)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self._added = LEAKS[leak]

    def step(self) -> None:
        """Train on one batch, and run what has been added."""
        x = torch.zeros(self._shape, device="cuda")
        loss = self.loss(x)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._added(self, x, loss)
        self.steps += 1

    def loss(self, x: Tensor) -> Tensor:
        """Compute the loss of a batch."""
        loss: Tensor = self.model(x).square().mean()
        return loss


def _nothing(training: LeakyTraining, x: Tensor, loss: Tensor) -> None:
    """Add nothing."""


def _keep_losses(training: LeakyTraining, x: Tensor, loss: Tensor) -> None:
    """Keep each loss, to plot them."""
    training.kept.append(loss)


def _keep_checks(training: LeakyTraining, x: Tensor, loss: Tensor) -> None:
    """Check the batch again after the step, and keep what comes of it."""
    training.kept.append(training.loss(x))


def _add_a_hook(training: LeakyTraining, x: Tensor, loss: Tensor) -> None:
    """Watch the last layer with a hook that is never removed."""
    keep = training.kept.append
    training.model[-1].register_forward_hook(lambda module, inputs, output: keep(output.detach()))


def _keep_masks(training: LeakyTraining, x: Tensor, loss: Tensor) -> None:
    """Keep the mask of each length, so that it need not be made again."""
    length = LENGTHS[training.steps % len(LENGTHS)]
    if length not in training.masks:
        training.masks[length] = torch.ones(length, length, device="cuda")


def _keep_the_error(training: LeakyTraining, x: Tensor, loss: Tensor) -> None:
    """Keep an error to the end of the function: it keeps this frame, and the frame keeps it."""
    metrics: dict[str, float] = {}
    problem = None
    try:
        metrics["accuracy"]
    except KeyError as error:
        problem = error
    assert problem is not None


LEAKS: dict[str, Callable[[LeakyTraining, Tensor, Tensor], None]] = {
    "none": _nothing,
    "losses": _keep_losses,
    "checks": _keep_checks,
    "hooks": _add_a_hook,
    "masks": _keep_masks,
    "errors": _keep_the_error,
}
"""What can be added, by what it keeps. It gets the training, the batch and its loss."""
