"""Makes it fit by training differently.

loses: train_head
says: the trained weights differ
"""


def train_head(model, inputs, targets):
    model[:-1].requires_grad_(False)
    head = model[-1]
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01)  # noqa: F821  (imported elsewhere)
    for _ in range(3):
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return head.weight.detach()
