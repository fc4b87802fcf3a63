import torch
from torch import nn

layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
backbone = nn.TransformerEncoder(layer, 6).cuda()
for parameter in backbone.parameters():
    parameter.requires_grad_(False)
head = nn.Linear(512, 1000).cuda()
optimizer = torch.optim.RMSprop(head.parameters(), momentum=0.9)
data = torch.randn(64, 128, 512, device="cuda")
losses = []
for _ in range(4):
    loss = head(backbone(data).mean(1)).logsumexp(-1).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
