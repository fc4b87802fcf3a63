"""Lets gradients go in the hook before anybody has used them.

loses: train
says: the trained weights differ
"""


def train(model, load, steps):
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # noqa: F821  (imported in another cell of the notebook)

    def forget(parameter):
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(forget)
    for step in range(steps):
        loss = model(load(step)).square().mean()
        loss.backward()
        optimizer.step()
