"""Callbacks of trainers name the stages in the order in which the trainers call them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vramlab.integrations.transformers import TrainerStages
from vramlab.report.evidence.stages import watching


class Listener:
    """Notes stages.

    Attributes:
        told: `+name` for each that begins, `-` for each that ends.
    """

    def __init__(self) -> None:
        self.told: list[str] = []

    def stage_begins(self, name: str) -> None:
        self.told.append(f"+{name}")

    def stage_ends(self) -> None:
        self.told.append("-")


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    watching.append(listener)
    yield listener
    watching.remove(listener)


def test_the_trainer_of_transformers(listener: Listener) -> None:
    """The order of calls is that of `_inner_training_loop` in transformers/trainer.py, 5.23."""
    stages = TrainerStages()
    nothing = SimpleNamespace(should_evaluate=False, should_save=False)
    both = SimpleNamespace(should_evaluate=True, should_save=True)
    stages.on_step_begin(None, None, nothing)
    stages.on_step_end(None, None, nothing)
    stages.on_step_begin(None, None, nothing)
    stages.on_step_end(None, None, both)
    stages.on_prediction_step(None, None, both)
    stages.on_evaluate(None, None, both)
    stages.on_save(None, None, both)
    stages.on_train_end(None, None, nothing)
    stages.on_prediction_step(None, None, nothing)  # trainer.predict() later on
    stages.on_predict(None, None, nothing, {})
    step, evaluation, saving = "+training step", "+evaluation", "+saving"
    assert listener.told == [step, "-", step, "-", evaluation, "-", saving, "-", evaluation, "-"]


def test_the_trainer_of_lightning(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its order of calls is that of `_FitLoop` in lightning/pytorch/loops, Lightning 2.6."""
    package, pytorch = ModuleType("lightning"), ModuleType("lightning.pytorch")
    pytorch.Callback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", pytorch)
    monkeypatch.delitem(sys.modules, "vramlab.integrations.lightning", raising=False)
    stages: Any = importlib.import_module("vramlab.integrations.lightning").LightningStages()
    stages.on_validation_start(None, None)  # the sanity check
    stages.on_validation_end(None, None)
    for index in range(2):
        stages.on_train_batch_start(None, None, None, index)
        stages.on_train_batch_end(None, None, None, None, index)
    stages.on_validation_start(None, None)
    stages.on_validation_end(None, None)
    stages.on_save_checkpoint(None, None, {})
    stages.on_train_end(None, None)
    evaluation, step = ["+evaluation", "-"], ["+training step", "-"]
    assert listener.told == [*evaluation, *step, *step, *evaluation, "+saving", "-"]
