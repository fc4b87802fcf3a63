"""A trainer with private attributes."""

import torch


class Trainer:
    def __init__(self, model):
        self._model = model
        self.__optimizer = None

    def use(self, optimizer):
        self.__optimizer = optimizer

    def learn(self, batch):
        loss = self._model(batch).square().mean()
        loss.backward()
        self.__optimizer.step()
        self.__optimizer.zero_grad()
        return loss.item()


class LoudTrainer(Trainer):
    def __init__(self, model, name):
        super().__init__(model)
        self.name = name

    def learn(self, batch):
        print("{0.name}: {1:.3f}".format(self, super().learn(batch)))


def train(model, load, steps):
    trainer = LoudTrainer(model, "trainer")
    trainer.use(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for step in range(2 * steps):
        if step == steps:
            trainer.use(None)
            trainer.use(torch.optim.AdamW(model.parameters(), fused=True))
        trainer.learn(load(step))
