"""The program as it was given.

loses: train
says: Something of every batch so far
"""


def train(model, load, batches):
    outputs = []
    model[0].register_forward_hook(lambda module, inputs, output: outputs.append(output))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # noqa: F821  (imported in another cell)
    checked = 0
    for index in range(batches):
        inputs, targets = load(index)
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        checked += (model(inputs) - targets).square().mean()
    return checked / batches, [output.max() for output in outputs]
