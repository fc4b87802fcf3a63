import torch
from types import MethodType

layer = torch.nn.Linear(1, 1)
layer.forward = MethodType(lambda self, x: x + 1, layer)
result = layer(torch.ones(1)).item() == 2
expected = True
