import torch
from functools import partial
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

seen = set()
kept = [torch.ops.aten.mm.default, torch.ops.aten._scaled_dot_product_flash_attention.default]


def policy(ctx, op, *args, **kwargs):
    seen.add(op.name())
    keep = op in kept or op in {torch.ops.aten.addmm.default}
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


x = torch.ones(2, 2, requires_grad=True)
context = partial(create_selective_checkpoint_contexts, policy)
y = checkpoint(lambda x: (x @ x).relu(), x, use_reentrant=False, context_fn=context)
y.sum().backward()
result = "aten::mm" in seen and x.grad.sum().item() == 16
expected = True
