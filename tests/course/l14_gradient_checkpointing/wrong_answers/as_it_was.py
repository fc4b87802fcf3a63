"""The program as it was given.

loses: train_step
says: How many blocks are recorded at a time?
"""


def train_step(model, x):
    loss = model(x).square().mean()
    loss.backward()
