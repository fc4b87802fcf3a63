"""Cuts the queries into pieces, and lets autograd keep the weights of each.

loses: attention
says: which of your tensors are as large?
"""


def attention(query, key, value):
    outputs = []
    for start in range(0, query.size(-2), 128):
        part = query[..., start : start + 128, :]
        scores = part @ key.transpose(-2, -1) / query.size(-1) ** 0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)  # noqa: F821
        scores = scores.masked_fill(future.triu(1 + start), float("-inf"))
        outputs.append(scores.softmax(-1) @ value)
    return torch.cat(outputs, dim=-2)  # noqa: F821
