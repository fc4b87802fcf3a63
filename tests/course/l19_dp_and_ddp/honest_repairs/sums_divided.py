"""The loss inside, as a sum of the part, divided by all rows."""

import torch


class Loss(torch.nn.Module):
    def __init__(self, model, rows):
        super().__init__()
        self.model, self._rows = model, rows

    def forward(self, x, labels):
        loss = torch.nn.functional.cross_entropy(self.model(x), labels, reduction="sum")
        return (loss / self._rows).unsqueeze(0)


def train_step(model, x, labels):
    loss = torch.nn.DataParallel(Loss(model, len(x)))(x, labels).sum()
    print(loss.item(), [torch.cuda.memory_allocated(gpu) for gpu in range(4)])
    loss.backward()
