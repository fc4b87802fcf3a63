"""Trains GPT-2 from scratch on made-up tokens. Plain PyTorch; nothing in it knows of vramlab."""

import argparse

import torch
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--steps", type=int, default=2)
options = parser.parse_args()

torch.set_default_device("cuda")
config = GPT2Config(n_layer=24, n_embd=1024, n_head=16)  # GPT-2 medium
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

for step in range(options.steps):
    tokens = torch.randint(config.vocab_size, (options.batch_size, config.n_positions))
    logits = model(tokens[:, :-1]).logits
    loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}")
