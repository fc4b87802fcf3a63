import torch
import transformers

config = transformers.BertConfig(
    hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048
)
model = transformers.BertForMaskedLM(config).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    ids = torch.randint(0, 30_000, (8, 256), device="cuda")
    with torch.autocast("cuda", torch.float16):
        loss = model(ids, labels=ids).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
