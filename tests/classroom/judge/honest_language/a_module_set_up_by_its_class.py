import torch


class Net(torch.nn.Module):
    def __init__(self):
        torch.nn.Module.__init__(self)
        self.l = torch.nn.Linear(1, 1)


result = len(list(Net().parameters())) == 2
expected = True
