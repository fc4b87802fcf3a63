"""Adds the four mean losses up instead of averaging them.

loses: train_step
says: the mean loss over all rows
"""


def train_step(model, x, labels):
    class WithLoss(torch.nn.Module):  # noqa: F821  (imported in another cell of the notebook)
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, labels):
            return torch.nn.functional.cross_entropy(self.model(x), labels).reshape(1)  # noqa: F821

    torch.nn.DataParallel(WithLoss())(x, labels).sum().backward()  # noqa: F821
