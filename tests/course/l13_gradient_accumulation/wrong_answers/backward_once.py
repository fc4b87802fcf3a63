"""Right gradients, but the graphs of a whole window are kept.

loses: train
says: activations are still allocated
"""


def train(model, load, rows, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)  # noqa: F821  (imported in another cell of the notebook)
    for start in range(0, len(rows), steps):
        window = range(start, min(start + steps, len(rows)))
        total = 0
        for i in window:
            inputs, targets = load(i)
            loss = torch.nn.functional.mse_loss(model(inputs), targets)  # noqa: F821
            total = total + loss * rows[i] / sum(rows[j] for j in window)
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
