"""Document 002's loop: the last window is divided by too much.

loses: train
says: too much or too little weight
"""


def train(model, load, rows, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)  # noqa: F821  (imported in another cell of the notebook)
    for i in range(len(rows)):
        inputs, targets = load(i)
        loss = torch.nn.functional.mse_loss(model(inputs), targets)  # noqa: F821
        (loss / steps).backward()
        if (i + 1) % steps == 0 or i + 1 == len(rows):
            optimizer.step()
            optimizer.zero_grad()
