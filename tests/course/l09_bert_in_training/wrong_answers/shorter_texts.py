"""Fits, because it cuts the texts in half.

loses: train
says: What is left out?
"""


def train(model, load, steps):
    model.use_attention("sdpa")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # noqa: F821  (imported in another cell of the notebook)
    losses, norms = [], []
    for step in range(steps):
        x, target = load(step)
        half = x.shape[1] // 2
        outputs = model(x[:, :half], hidden_states=True)
        loss = (outputs.last - target[:, :half]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        norms.append([state.detach().norm() for state in outputs.hidden_states])
    return losses, norms
