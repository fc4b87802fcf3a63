"""Train or evaluate a GPT-2 with the changes that are named on the command line."""

import sys

import torch
import transformers
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

changes = set(sys.argv[1:])


def loss_of(hidden: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    logits = model.lm_head(hidden).flatten(0, 1)
    return cross_entropy(logits, ids.flatten(), reduction="sum")


attention = "sdpa" if "sdpa" in changes else "eager"
config = transformers.GPT2Config(n_embd=768, n_layer=6, n_head=12)
config._attn_implementation = attention
model = transformers.GPT2LMHeadModel(config).cuda()
if "checkpointing" in changes:
    model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    ids = torch.randint(0, 50_257, (8, 1024), device="cuda")
    with torch.set_grad_enabled("no_grad" not in changes):
        hidden = model.transformer(ids, use_cache=False).last_hidden_state
        if "chunks" in changes:
            loss = sum(
                checkpoint(loss_of, *part, use_reentrant=False)
                for part in zip(hidden.chunk(8), ids.chunk(8), strict=True)
            )
        else:
            loss = loss_of(hidden, ids)
    if "evaluation" not in changes:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
