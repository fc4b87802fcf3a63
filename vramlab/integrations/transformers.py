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
from vramlab.report.showing.stage_text import EVALUATION, SAVING, TRAINING


class TrainerStages(TrainerCallback):
    """Names training steps, evaluation and saving.

    The Trainer decides after a step, or an epoch, whether it evaluates and saves next; what it does
    first then begins at once, so that its first batch counts.
    """

    def __init__(self) -> None:
        self._stage = OpenStage()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin a training step; with accumulated gradients, at the first of its batches."""
        self._stage.begin(TRAINING)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the step, and go on with what the Trainer decided to do next."""
        self._what_follows(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Go on in the same way after an epoch."""
        self._what_follows(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Hear of a batch that was predicted, in an evaluation or outside of training."""
        self._stage.begin(EVALUATION)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the evaluation."""
        self._stage.end(EVALUATION)
        if control.should_save:
            self._stage.begin(SAVING)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
        """End the prediction."""
        self._stage.end(EVALUATION)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End saving: a checkpoint has been written."""
        self._stage.end(SAVING)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the training."""
        self._stage.end()

    def _what_follows(self, control: Any) -> None:
        self._stage.end()
        if control.should_evaluate:
            self._stage.begin(EVALUATION)
        elif control.should_save:
            self._stage.begin(SAVING)
