"""The program as it was given.

loses: train_step
says: What has to be on GPU 0?
"""


def train_step(model, x, labels):
    parallel = torch.nn.DataParallel(model)  # noqa: F821  (imported in another cell of the notebook)
    loss = torch.nn.functional.cross_entropy(parallel(x), labels)  # noqa: F821
    loss.backward()
