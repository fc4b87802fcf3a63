"""Leaves the gradients of the tries.

loses: gradient_of_all
says: A backward pass that fails
"""


def gradient_of_all(model, load, count):
    def loss_and_backward(start, batch):
        loss = model(load(start, min(start + batch, count))).square().sum()
        loss.backward()
        return loss.detach()

    def fits(batch):
        try:
            loss_and_backward(0, batch)
        except torch.cuda.OutOfMemoryError:  # noqa: F821  (imported in another cell of the notebook)
            fitted = False
        else:
            fitted = True
        torch.cuda.empty_cache()  # noqa: F821
        return fitted

    batch = count
    while not fits(batch):
        batch //= 2
    return sum(loss_and_backward(start, batch) for start in range(0, count, batch))
