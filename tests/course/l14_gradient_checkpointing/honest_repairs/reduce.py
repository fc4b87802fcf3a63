"""functools.reduce."""

from functools import partial, reduce

from torch.utils.checkpoint import checkpoint


def train_step(model, x):
    run = partial(checkpoint, use_reentrant=False)
    out = reduce(lambda state, block: run(block, state), model, x)
    (out**2).mean().backward()
