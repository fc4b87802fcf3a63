"""Turns autograd off, and gathers the scores on the GPU.

loses: evaluate
says: What else of each batch stays on the GPU?
"""


@torch.no_grad()  # noqa: F821  (imported in another cell)
def evaluate(model, load, batches):
    model.eval()
    total = 0
    scores = []
    for step in range(batches):
        inputs, targets = load(step)
        outputs = model(inputs)
        total += (outputs - targets).square().mean()
        scores.append(outputs)
    return total / batches, torch.cat(scores)  # noqa: F821
