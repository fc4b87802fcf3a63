"""Fits, and takes no_grad() for eval().

loses: evaluate
says: It fits, but its scores are others.
"""


def evaluate(model, load, batches):
    total = 0
    scores = []
    with torch.no_grad():  # noqa: F821  (imported in another cell)
        for step in range(batches):
            inputs, targets = load(step)
            outputs = model(inputs)
            total += (outputs - targets).square().mean()
            scores.append(outputs.cpu())
    return total / batches, torch.cat(scores)  # noqa: F821
