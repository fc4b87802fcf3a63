"""The batch grows until the logits of one more step do not fit."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50257, 768)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
            for _ in range(6)
        )
        self.head = nn.Linear(768, 50257, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


total_bytes = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(8 * 2**30 / total_bytes)
model = Model().cuda()
optimizer = torch.optim.Adam(model.parameters())
for batch in range(4, 16, 2):
    ids = torch.randint(0, 50257, (batch, 512), device="cuda")
    logits = model(ids)
    loss = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
