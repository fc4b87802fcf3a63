"""The program as it was given.

loses: train
says: Not even one step fits.
"""


def train(model, load, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # noqa: F821  (imported in another cell of the notebook)
    losses, history = [], []
    for step in range(steps):
        x, target = load(step)
        outputs = model(x, hidden_states=True, attention_weights=True)
        loss = (outputs.last - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        history.append(outputs)
    norms = [[state.norm() for state in outputs.hidden_states] for outputs in history]
    return losses, norms
