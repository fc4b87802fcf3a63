from torch import nn
from torch.nn.modules import Linear
from torch.nn.modules.linear import Bilinear
from torch.optim.adam import Adam
from torch.optim.optimizer import Optimizer
from torch.types import Device


def layer(device: Device) -> Linear:
    return Linear(1, 1, device=device)


result = isinstance(layer("cpu"), nn.Linear), Bilinear is nn.Bilinear, issubclass(Adam, Optimizer)
expected = True, True, True
