import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(before, after, 3, padding=1),
                    nn.BatchNorm2d(after),
                    nn.ReLU(inplace=True),
                    nn.MaxPool2d(2),
                )
                for before, after in ((3, 64), (64, 128), (128, 256))
            )
        )
        self.head = nn.Linear(256 * 8 * 8, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).flatten(1))


def main() -> None:
    device = torch.device("cuda")
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        x = torch.randn(128, 3, 64, 64).to(device)
        y = torch.randint(100, (128,)).to(device)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


main()
