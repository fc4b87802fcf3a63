"""Lets the saved tensors wait on the host.

loses: train_step
says: to the host.
"""


def train_step(model, x):
    with torch.autograd.graph.save_on_cpu():  # noqa: F821  (imported in another cell of the notebook)
        y = model(x)
        loss = torch.nn.functional.normalize(y, dim=1).square().square().sum()  # noqa: F821
    loss.backward()
