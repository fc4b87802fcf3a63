"""Gives all gradients back after each step: they are made all the same.

loses: train_head
says: It still runs out of memory.
"""


def train_head(model, inputs, targets):
    head = model[-1]
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)  # noqa: F821  (imported elsewhere)
    for _ in range(3):
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        model.zero_grad()
    return head.weight.detach()
