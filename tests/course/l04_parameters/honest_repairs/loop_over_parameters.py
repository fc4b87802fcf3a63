"""Freezes parameter by parameter, and looks at attributes by name."""

import torch


def train_head(model, inputs, targets):
    for name, parameter in model.named_parameters():
        if not name.startswith(f"{len(model) - 1}."):
            setattr(parameter, "requires_grad", False)
    head = model[-1]
    assert hasattr(head, "weight") and type(head) is torch.nn.Linear
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    print(losses, type(losses).__name__, getattr(head, "bias").shape)
    return head.weight.detach()
