"""Lesson 19: what each GPU holds when several share a batch."""

from __future__ import annotations

import torch
from torch.nn.parallel import DataParallel

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab.measure.environment import require_gpus, start_afresh
from vramlab.programs.alone import alone
from vramlab.programs.optimizer_states import state_bytes
from vramlab_course.experiments.bert import bert_base
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.formulas.bert import Bert
from vramlab_course.formulas.packing import packed
from vramlab_course.lessons.l19_dp_and_ddp.data_parallel import DataParallelTraining
from vramlab_course.lessons.l19_dp_and_ddp.formulas import (
    Classifier,
    DataParallelStep,
    DistributedStep,
    Parts,
    pieces,
)

RANKS = 4


@experiment(
    "data-parallel-step",
    lesson="19",
    question="What does each of four GPUs hold with DataParallel?",
    source="001 §5.1, §5.11",
    conditions=Conditions(gpu="T4", count=4, why="nothing published: any four GPUs"),
)
def data_parallel_step(
    gpus: int = 4,
    batch: int = 1024,
    width: int = 1024,
    layers: int = 4,
    classes: int = 8192,
    loss_inside: bool = False,
) -> Outcome:
    """Run the second step of a classifier with AdamW, once for each GPU that is looked at.

    Args:
        gpus: how many share the batch; so many must be attached.
        batch: rows of the whole batch.
        width: of the layers.
        layers: hidden ones.
        classes: of the head.
        loss_inside: the module computes the loss of its rows, and answers only that.
    """
    require_gpus(gpus, "T4")
    trial = Trial(
        "data-parallel-step",
        gpus=gpus,
        batch=batch,
        width=width,
        layers=layers,
        classes=classes,
        loss_inside=loss_inside,
    )
    # Of a thread of the forward pass, which the next one's thread inherits, and of backward's.
    workspaces_bytes = 2 * trial.environment.matmul_workspace_bytes()
    sizes = Classifier(width, layers, classes)
    predicted = DataParallelStep(sizes, gpus, batch, loss_inside)

    def bytes_of(parts: Parts) -> int:
        return sum(parts.values()) + workspaces_bytes

    for gpu in range(gpus):
        training = DataParallelTraining(sizes, batch)
        training.with_data_parallel(gpus, loss_inside)
        training.whole_step()
        with torch.cuda.device(gpu):
            forward_bytes = bytes_of(predicted.after_forward(gpu))
            with trial.stage(f"GPU {gpu}: forward", expected("allocated", forward_bytes)):
                training.forward()
            loss_bytes = bytes_of(predicted.after_loss(gpu))
            with trial.stage(f"GPU {gpu}: loss", expected("allocated", loss_bytes)):
                training.compute_loss()
            with trial.stage(
                f"GPU {gpu}: backward",
                expected("peak", bytes_of(predicted.peak(gpu)[1])),
                expected("allocated", bytes_of(predicted.after_backward(gpu))),
            ):
                training.backward()
        del training
    return trial.outcome()


@experiment(
    "data-parallel-bert",
    lesson="19",
    question="BERT-base on four GPUs: what does each of them hold?",
    source="001 §5.11",
    conditions=Conditions(count=4, why="the document has no figures; its model and its batch"),
)
def data_parallel_bert(gpus: int = 4, batch: int = 32, sequence: int = 512) -> Outcome:
    """Run a step of BERT-base with AdamW, for GPU 0 and for GPU 1; the others are as GPU 1.

    As in `bert-training`, which is the same on one GPU. Of a replica, what no gradient needs has
    gone when forward has ended: the piece with the word embeddings, and the last bias.

    Args:
        gpus: how many share the batch; so many must be attached.
        batch: sequences of the whole batch; `gpus` must divide it.
        sequence: tokens of each.
    """
    require_gpus(gpus, "T4")
    trial = Trial("data-parallel-bert", gpus=gpus, batch=batch, sequence=sequence)
    workspace_bytes = trial.environment.linear_workspace_bytes()
    sizes = Bert()
    weights_bytes = [tensor_bytes(shape) for shape in sizes.parameter_shapes()]
    first, *needed, last = pieces(weights_bytes)
    if first != [0] or last != [len(weights_bytes) - 1]:
        raise AssertionError(f"a replica of BERT-base is cut otherwise: {first}, ..., {last}")
    needed_bytes = sum(sum(weights_bytes[number] for number in piece) for piece in needed)
    buffers_bytes = block_bytes(2 * tensor_bytes((sizes.positions,), "int64"))
    kept_bytes = sizes.forward_bytes(batch // gpus, sequence) + workspace_bytes
    for gpu in (0, 1):
        start_afresh()
        model = bert_base().to("cuda:0")
        parallel = DataParallel(model, device_ids=list(range(gpus)))
        optimizer = torch.optim.AdamW(model.parameters())
        tokens = torch.zeros((batch, sequence), dtype=torch.long, device="cuda:0")
        with torch.cuda.device(gpu):
            with trial.stage(f"GPU {gpu}: forward") as forward:
                outputs = parallel(tokens)
            if gpu == 0:
                held_bytes = (
                    packed(sizes.model_requests_bytes())[0]
                    + block_bytes(tensor_bytes((batch, sequence), "int64"))
                    + sizes.output_bytes(batch, sequence)
                )
            else:
                rows_bytes = block_bytes(tensor_bytes((batch // gpus, sequence), "int64"))
                held_bytes = (
                    needed_bytes + buffers_bytes + rows_bytes + unsplit_remainder_bytes(gpu)
                )
            forward.expect(expected("allocated", held_bytes + kept_bytes))
            with trial.stage(f"GPU {gpu}: loss and backward"):
                loss = outputs.last_hidden_state.sum()
                loss.backward()
            del outputs, loss
            with trial.stage(f"GPU {gpu}: AdamW's step"):
                optimizer.step()
        del model, parallel, optimizer, tokens
    return trial.outcome()


@experiment(
    "ddp-step",
    lesson="19",
    question="What does DistributedDataParallel add to what a process holds?",
    source="001 §5.1, §5.12",
)
def ddp_step(rows: int = 256, width: int = 1024, layers: int = 4, classes: int = 8192) -> Outcome:
    """Run the second step of a classifier with AdamW: alone, and as a rank with DDP in two ways.

    Args:
        rows: of each rank's own batch.
        width: of the layers.
        layers: hidden ones.
        classes: of the head.
    """
    trial = Trial("ddp-step", rows=rows, width=width, layers=layers, classes=classes)
    workspaces_bytes = 2 * trial.environment.matmul_workspace_bytes()
    sizes = Classifier(width, layers, classes)
    states_bytes = state_bytes("adamw", sizes.weights_bytes)
    assert states_bytes == sizes.states * sizes.parameters_bytes
    with alone(RANKS):
        for name, has_buckets, as_view in (
            ("one process", False, False),
            ("DDP", True, False),
            ("DDP, views", True, True),
        ):
            predicted = DistributedStep(sizes, rows, has_buckets, as_view)
            training = DataParallelTraining(sizes, rows)
            if has_buckets:
                training.with_ddp(as_view)
            training.whole_step()
            _, at_peak = predicted.peak()
            after = predicted.after_backward()
            with trial.stage(
                f"{name}: second step until backward has ended",
                expected("peak", sum(at_peak.values()) + workspaces_bytes),
                expected("allocated", sum(after.values()) + workspaces_bytes),
            ):
                training.forward()
                training.compute_loss()
                training.backward()
            del training
    return trial.outcome()
