"""The program as it was given.

loses: evaluate
says: their graphs are still there.
"""


def evaluate(model, load, batches):
    model.eval()
    total = 0
    scores = []
    for step in range(batches):
        inputs, targets = load(step)
        outputs = model(inputs)
        total += (outputs - targets).square().mean()
        scores.append(outputs)
    return total / batches, torch.cat(scores)  # noqa: F821  (imported in another cell)
