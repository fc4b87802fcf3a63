"""Evaluates, and forgets to say what came out.

loses: evaluate
says: It has to return two results: the mean loss, and the scores.
"""


def evaluate(model, load, batches):
    model.eval()
    with torch.no_grad():  # noqa: F821  (imported in another cell)
        for step in range(batches):
            inputs, _ = load(step)
            model(inputs)
