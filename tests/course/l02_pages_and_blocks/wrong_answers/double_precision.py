"""Makes it fit, and gives something else.

loses: row_norms
says: It fits, but gives torch.float64
"""


def row_norms(load, count):
    norms = []
    for index in range(count):
        batch = load(index)
        norms.append(batch.square_().sum(dim=1).double().sqrt())
        del batch
    return torch.cat(norms)  # noqa: F821  (imported in another cell of the notebook)
