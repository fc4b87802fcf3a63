"""Train a small language model with all that training scripts use at work."""

import math
import pathlib
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

VOCABULARY, LENGTH, WIDTH = 1000, 64, 128


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def accuracy(logits, targets):
    predictions = logits.argmax(dim=-1).cpu().numpy()
    return (predictions == targets.cpu().numpy()).mean()


def main(folder):
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokens = torch.randint(VOCABULARY, (48, LENGTH + 1))
    loader = DataLoader(TensorDataset(tokens), batch_size=16, shuffle=True, pin_memory=True)
    model = Model().to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    scaler = torch.amp.GradScaler("cuda")
    best = math.inf
    for epoch in range(2):
        total = 0.0
        for (batch,) in tqdm(loader, disable=None):
            batch = batch.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.float16):
                logits = compiled(batch[:, :-1])
                loss = nn.functional.cross_entropy(
                    logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1)
                )
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
            if norm > 10:
                print("large gradient", norm.tolist())
        scheduler.step()
        print(
            f"epoch {epoch}: loss {total / len(loader):.3f}", loss, accuracy(logits, batch[:, 1:])
        )
        if not total > best:
            best = total
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                folder / "best.pt",
            )
    state = torch.load(folder / "best.pt", map_location=device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print("done", scaler.get_scale(), scheduler.get_last_lr())


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
