"""Steps on the host, and forgets to bring the parameters back.

loses: train
says: the trained weights differ
"""


def train(model, load, steps):
    parameters = list(model.parameters())
    on_host = [torch.nn.Parameter(parameter.detach().cpu()) for parameter in parameters]  # noqa: F821  (imported in another cell of the notebook)
    optimizer = torch.optim.AdamW(on_host, lr=0.01)  # noqa: F821
    for step in range(steps):
        loss = model(load(step)).square().mean()
        loss.backward()
        for parameter, copy in zip(parameters, on_host, strict=True):
            copy.grad = parameter.grad.cpu()
            parameter.grad = None
        optimizer.step()
