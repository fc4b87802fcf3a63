"""A callback for the Trainer of Lightning.

It is given to the Trainer:

    with vramlab.track("A100-40GB"):
        trainer = Trainer(max_steps=3, accelerator="gpu", callbacks=[LightningStages()])
        trainer.fit(module, loader)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vramlab.integrations.open_stage import OpenStage
from vramlab.report.showing.stage_text import EVALUATION, SAVING, TRAINING

if TYPE_CHECKING:
    Callback = object
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:  # its older name
        from pytorch_lightning import Callback


class LightningStages(Callback):
    """Names training steps, evaluation and saving."""

    def __init__(self) -> None:
        self._stage = OpenStage()

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        """Begin a training step: the batch is on the GPU."""
        self._stage.begin(TRAINING)

    def on_train_batch_end(self, *_: Any) -> None:
        """End the step."""
        self._stage.end(TRAINING)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Begin an evaluation."""
        self._stage.begin(EVALUATION)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """End the evaluation."""
        self._stage.end(EVALUATION)

    on_test_start = on_predict_start = on_validation_start
    on_test_end = on_predict_end = on_validation_end

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        """Begin to save: all is gathered, and written until the next step or the end."""
        self._stage.begin(SAVING)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """End the training."""
        self._stage.end()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """End what is under way: the training failed."""
        self._stage.end()
