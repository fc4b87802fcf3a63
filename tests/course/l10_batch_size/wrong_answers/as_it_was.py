"""The program as it was given: it retries inside the except block.

loses: gradient_of_all
says: the tensors of the batch that failed
"""


def gradient_of_all(model, load, count, batch=None):
    batch = batch or count
    try:
        total = 0.0
        for start in range(0, count, batch):
            loss = model(load(start, min(start + batch, count))).square().sum()
            loss.backward()
            total += loss.detach()
        return total
    except torch.cuda.OutOfMemoryError:  # noqa: F821  (imported in another cell of the notebook)
        if batch == 1:
            raise
        model.zero_grad()
        return gradient_of_all(model, load, count, batch // 2)
