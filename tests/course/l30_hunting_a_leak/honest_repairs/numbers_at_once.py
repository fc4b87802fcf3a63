"""A named hook, numbers of Python, and inference_mode() for the check."""

import torch


def train(model, load, batches):
    largest = []

    def note(module, inputs, output):
        with torch.no_grad():
            largest.append(output.amax().item())

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0.0
    hook = model[0].register_forward_hook(note)
    try:
        for index in range(batches):
            inputs, targets = load(index)
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            with torch.inference_mode():
                total += torch.nn.functional.mse_loss(model(inputs), targets).item()
    finally:
        hook.remove()
    return total / batches, largest
