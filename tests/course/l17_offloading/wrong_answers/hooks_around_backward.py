"""Opens the context too late: forward has saved everything by then.

loses: train_step
says: needed only in the backward pass?
"""


def train_step(model, x):
    loss = model(x).square().mean()
    with torch.autograd.graph.save_on_cpu():  # noqa: F821  (imported in another cell of the notebook)
        loss.backward()
