"""Opens the context too late: forward has saved everything by then.

loses: train_step
says: Which of them are needed only in backward?
"""


def train_step(model, x):
    loss = model(x).square().mean()
    with torch.autograd.graph.save_on_cpu():  # noqa: F821  (imported in another cell of the notebook)
        loss.backward()
