"""Rows chosen by a mask, and written back by the same mask."""

import torch


class Expert(torch.nn.Module):
    def __init__(self, up, down):
        super().__init__()
        self.up, self.down = up, down

    def forward(self, x):
        return torch.nn.functional.linear(
            torch.nn.functional.gelu(torch.nn.functional.linear(x, self.up)), self.down
        )


def moe(x, scores, up, down, top_k):
    chosen = scores.topk(top_k).indices
    parts = []
    for number in range(len(up)):
        mask = (chosen == number).any(dim=1)
        answer = Expert(up[number], down[number])(x[mask]) * scores[mask, number][:, None]
        parts.append((mask.nonzero()[:, 0], answer))
    tokens = torch.cat([rows for rows, _ in parts])
    return torch.zeros_like(x).index_put((tokens,), torch.cat([a for _, a in parts]), accumulate=True)
