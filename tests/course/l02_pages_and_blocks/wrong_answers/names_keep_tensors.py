"""The loop as it was given: two names keep the last batch while the next one is made.

loses: row_norms
says: it runs out of memory while it holds
"""


def row_norms(load, count):
    norms = []
    for index in range(count):
        batch = load(index)
        squares = batch * batch
        norms.append(squares.sum(dim=1).sqrt())
    return torch.cat(norms)  # noqa: F821  (imported in another cell of the notebook)
