import torch


class Half(torch.nn.Linear):
    def _apply(self, fn, *rest):
        self._count = getattr(self, "_count", 0) + 1
        return super()._apply(fn, *rest)


result = Half(1, 1).double()._count == 1
expected = True
