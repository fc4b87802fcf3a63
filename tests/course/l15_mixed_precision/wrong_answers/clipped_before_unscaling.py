"""Scales the loss, and clips the scaled gradients.

loses: train
says: unscaled before clipping?
"""


def train(model, load, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=2e5)  # noqa: F821  (imported in another cell of the notebook)
    scaler = torch.amp.GradScaler("cuda")  # noqa: F821
    for step in range(steps):
        inputs, targets = load(step)
        with torch.autocast("cuda", dtype=torch.float16):  # noqa: F821
            loss = 0.001 * torch.nn.functional.mse_loss(model(inputs), targets)  # noqa: F821
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2e-6)  # noqa: F821
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
