"""A classifier that several GPUs train together, part by part of a step.

    training = Training(Classifier(width=1024, layers=4, classes=8192), rows=1024)
    training.with_data_parallel(gpus=4, loss_inside=False)
    training.forward()          # and compute_loss(), backward(), step()

`vramlab_course.lessons.l19_dp_and_ddp.formulas` says what each GPU holds at each moment.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DataParallel, DistributedDataParallel

from vramlab_course.lessons.l19_dp_and_ddp.formulas import Classifier


def classifier(sizes: Classifier) -> nn.Sequential:
    """Make the model of `formulas.data_parallel`, on the host: (rows, W) to (rows, C)."""
    layers = [nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(sizes.layers)]
    return nn.Sequential(*layers, nn.Linear(sizes.width, sizes.classes, bias=False))


class WithLoss(nn.Module):
    """A model that answers the loss of its rows, so that DataParallel gathers nothing else."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Map (rows, W) and labels (rows) to a vector of one number, the mean loss."""
        return cross_entropy(self.model(x), labels).reshape(1)


class DataParallelTraining:
    """A classifier that is trained by DataParallel, or by one rank with DDP, or by one process."""

    def __init__(self, sizes: Classifier, rows: int) -> None:
        self.model = classifier(sizes).to("cuda:0")
        self.parallel: nn.Module = self.model
        self.loss_inside = False
        self.x = torch.zeros(rows, sizes.width, device="cuda:0")
        self.labels = torch.zeros(rows, dtype=torch.long, device="cuda:0")
        self.outputs: Tensor | None = None
        self.loss: Tensor | None = None
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.AdamW(self.model.parameters())
            if sizes.states
            else torch.optim.SGD(self.model.parameters(), lr=0.1)
        )

    def with_data_parallel(self, gpus: int, loss_inside: bool) -> None:
        """Give each GPU a part of the batch."""
        self.loss_inside = loss_inside
        module = WithLoss(self.model) if loss_inside else self.model
        self.parallel = DataParallel(module, device_ids=list(range(gpus)))

    def with_ddp(self, as_view: bool) -> None:
        """Be one rank of the world that has been joined."""
        self.parallel = DistributedDataParallel(self.model, gradient_as_bucket_view=as_view)

    def forward(self) -> None:
        """Compute the outputs, which stay."""
        both = (self.x, self.labels) if self.loss_inside else (self.x,)
        self.outputs = self.parallel(*both)

    def compute_loss(self) -> None:
        """Compute the loss from what forward has answered."""
        assert self.outputs is not None
        if self.loss_inside:
            self.loss = self.outputs.mean()
        else:
            self.loss = cross_entropy(self.outputs, self.labels)

    def backward(self) -> None:
        """Make the gradients."""
        assert self.loss is not None
        self.loss.backward()

    def step(self) -> None:
        """Update, and let go of what the step has made."""
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.outputs = self.loss = None

    def whole_step(self) -> None:
        """Do everything once."""
        self.forward()
        self.compute_loss()
        self.backward()
        self.step()
