import torch
from torch import nn

layers = [module for _ in range(4) for module in (nn.Linear(2048, 2048), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    x = torch.randn(4096, 2048, device="cuda")
    y = torch.randint(10, (4096,), device="cuda")
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
