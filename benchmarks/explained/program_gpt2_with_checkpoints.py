import torch
import transformers

config = transformers.GPT2Config(n_embd=768, n_layer=6, n_head=12)
model = transformers.GPT2LMHeadModel(config).cuda().to(torch.bfloat16)
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    ids = torch.randint(0, 50_257, (4, 1024), device="cuda")
    model(ids, labels=ids, use_cache=False).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
