import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20_000, 256)
        self.lstm = nn.LSTM(256, 512, 2, batch_first=True, bidirectional=True)
        self.out = nn.Linear(1024, 50)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(self.embed(words))[0])


model = Tagger().to("cuda")
optimizer = torch.optim.Adagrad(model.parameters())
for _ in range(3):
    words = torch.randint(20_000, (64, 128), device="cuda")
    tags = torch.randint(50, (64, 128), device="cuda")
    loss = nn.functional.cross_entropy(model(words).flatten(0, 1), tags.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
