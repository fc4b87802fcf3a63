"""A callback for the Trainer of transformers.

It is given to the Trainer:

    with vramlab.track("A100-40GB"):
        trainer = Trainer(model, arguments, ..., callbacks=[TrainerStages()])
        trainer.train()
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from vramlab.integrations.open_stage import OpenStage
from vramlab.report.stage_text import EVALUATION, SAVING, TRAINING


class TrainerStages(TrainerCallback):
    """Names training steps, evaluation and saving.

    The Trainer decides after a step, or an epoch, whether it evaluates and saves next; what it does
    first then begins at once, so that its first batch counts.
    """

    def __init__(self) -> None:
        self._stage = OpenStage()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A training step begins; with accumulated gradients, the first of its batches."""
        self._stage.begin(TRAINING)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The step is over, and what follows is decided."""
        self._what_follows(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The same after an epoch."""
        self._what_follows(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A batch of an evaluation has been predicted, also of one outside of training."""
        self._stage.begin(EVALUATION)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An evaluation is over."""
        self._stage.end(EVALUATION)
        if control.should_save:
            self._stage.begin(SAVING)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
        """A prediction is over."""
        self._stage.end(EVALUATION)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A checkpoint has been written."""
        self._stage.end(SAVING)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The training is over."""
        self._stage.end()

    def _what_follows(self, control: Any) -> None:
        self._stage.end()
        if control.should_evaluate:
            self._stage.begin(EVALUATION)
        elif control.should_save:
            self._stage.begin(SAVING)
