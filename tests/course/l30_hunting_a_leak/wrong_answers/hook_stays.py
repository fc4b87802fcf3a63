"""Fits, and leaves its hook on the model.

loses: train
says: your hook on model[0] is still
"""


def train(model, load, batches):
    largest = []
    model[0].register_forward_hook(
        lambda module, inputs, output: largest.append(output.detach().max())
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # noqa: F821  (imported in another cell)
    checked = 0
    for index in range(batches):
        inputs, targets = load(index)
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():  # noqa: F821
            checked += (model(inputs) - targets).square().mean()
    return checked / batches, largest
