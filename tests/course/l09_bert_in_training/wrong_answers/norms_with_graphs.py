"""Takes the norms at once, but lets each keep its hidden state.

loses: train
says: The first step fits
"""


def train(model, load, steps):
    model.use_attention("sdpa")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # noqa: F821  (imported in another cell of the notebook)
    losses, norms = [], []
    for step in range(steps):
        x, target = load(step)
        outputs = model(x, hidden_states=True)
        loss = (outputs.last - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        norms.append([state.norm() for state in outputs.hidden_states])
    return losses, norms
