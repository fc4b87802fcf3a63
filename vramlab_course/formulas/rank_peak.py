"""The peak of a training step on one rank of many: what it keeps for itself, and what it is lent.

`transformer_peak` has the moments of one GPU's step. A rank's step has the same moments, with its
part of the model (`vramlab.planner.parts`), and other things beside them:

    DDP        gradients stay in buckets, from one step to the next
    ZeRO-1     the optimizer states of some parameters
    ZeRO-2, 3  shards of all; whole parameters are gathered, whole gradients are scattered (FSDP2)
    pipeline   other micro-batches in flight, and buffers to receive into

Source: torch/nn/parallel/distributed.py and torch/csrc/distributed/c10d/reducer.cpp for buckets;
torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py for what is
gathered and when it is let go; torch/distributed/pipelining/stage.py and schedules.py; all of
PyTorch 2.13.

Known limitations, each of which a simulation shows: what tensor parallelism gathers and reduces for
a moment is counted only where it is kept; communication on streams of its own is taken to end as
soon as it is waited for; where activations wait on the host, those that a layer works on in the
forward pass are taken to be no more than those in its backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest

from vramlab.cuda_rules.storage import ITEM_BYTES, block_bytes, tensor_bytes
from vramlab.programs import transformer_memory as kept
from vramlab.programs.optimizer_states import adam_step_extra_bytes, state_bytes
from vramlab.programs.pipeline_schedules import Name as Schedule
from vramlab.programs.transformer_memory import Run, Sizes
from vramlab_course.formulas import transformer_peak, zero
from vramlab_course.formulas.transformer_peak import Gpu, Moment

BORROWED = "gathered and sent"
"""Parameters that were gathered, and buffers of what is sent and received."""

CATEGORIES = (
    "parameters",
    "optimizer states",
    "gradients",
    BORROWED,
    "inputs",
    "workspaces",
    "activations",
    "temporaries",
)


@dataclass(frozen=True)
class Sharing:
    """What a rank does together with others, beside cutting matrices."""

    stage: zero.Stage = 0
    """Of ZeRO."""
    data: int = 1
    """Data-parallel ranks."""
    micro_batches: int = 1
    """That a rank takes one after the other in a step."""
    tensor: int = 1
    """Ranks that share matrices, and the vocabulary."""
    pipeline: int = 1
    """Stages."""
    schedule: Schedule = "1F1B"
    """Of the pipeline."""
    in_flight: int = 1
    """The most micro-batches that are between their forward and their backward pass."""
    in_flight_later: int = 1
    """The same from the end of the first backward pass on."""
    activations_on_host: bool = False
    """Whether what the forward pass keeps waits on the host for the backward pass."""
    optimizer_on_host: bool = False
    """Whether the optimizer, and with it what FSDP2 keeps, is on the host."""


def peak(sizes: Sizes, run: Run, gpu: Gpu, sharing: Sharing) -> Moment:
    """The largest moment of a rank's step.

    Args:
        sizes: of what the rank has.
        run: of one micro-batch.
        gpu: that the rank is.
        sharing: with others.
    """
    return max(moments(sizes, run, gpu, sharing), key=lambda moment: moment.total_bytes)


def moments(sizes: Sizes, run: Run, gpu: Gpu, sharing: Sharing) -> Iterator[Moment]:
    """All moments at which a rank's step can peak."""
    kind = _Sharded if sharing.stage >= 2 else _Replicated
    for later in (False, True) if sharing.micro_batches > 1 else (False,):
        yield from _moments(kind(sizes, run, sharing, later), gpu)


def _moments(rank: _Replicated, gpu: Gpu) -> Iterator[Moment]:
    sizes, run, sharing = rank.sizes, rank.run, rank.sharing
    lasting = {
        "parameters": rank.parameters_bytes(),
        "optimizer states": rank.states_bytes(),
        "inputs": sharing.micro_batches * kept.input_bytes(sizes, run),
    }
    buffers_bytes, in_flight_bytes = rank.buffers_bytes(), rank.in_flight_bytes()
    alone = transformer_peak.moments(sizes, run, gpu, gradients_stay=rank.gradients_stay)
    for moment, following in zip_longest(alone, alone[1:]):
        amounts = {
            **moment.bytes_by_category,
            **lasting,
            "gradients": rank.gradients_bytes(moment),
            BORROWED: rank.borrowed_bytes(moment) + buffers_bytes,
        }
        if moment.updates:
            amounts |= {"temporaries": rank.update_bytes(), "activations": 0}
        else:
            amounts["activations"] = in_flight_bytes + rank.activations_bytes(moment, following)
            amounts["temporaries"] += rank.more_temporaries_bytes(moment)
        found = replace(moment, bytes_by_category={name: amounts[name] for name in CATEGORIES})
        yield found
        if moment.phase == "forward":
            yield from rank.gathering(found)
            if sharing.tensor > 1 and sizes.predicts:
                yield rank.loss_of_parts(found)


def _is_same_part(moment: Moment, other: Moment) -> bool:
    """Whether both are of the same layer, or the head."""
    return (moment.phase, moment.layers_done) == (other.phase, other.layers_done)


class _Replicated:
    """A rank that has all parameters of its part: alone, under DDP, or with ZeRO-1.

    Attributes:
        later: whether this is about the micro-batches after the first one's backward pass.
    """

    def __init__(self, sizes: Sizes, run: Run, sharing: Sharing, later: bool) -> None:
        self.sizes, self.run, self.sharing, self.later = sizes, run, sharing, later
        self.groups = [
            *([sizes.layer_shapes()] * sizes.layers),
            [*sizes.embedding_shapes(), *sizes.head_shapes()],
        ]
        self.shapes = [shape for group in self.groups for shape in group]

    @property
    def gradients_stay(self) -> bool:
        """Whether there are gradients of all parameters before the backward pass begins."""
        return self.sharing.data > 1 or self.later

    @property
    def dtype(self) -> str:
        """In which parameters are kept."""
        return self.run.dtypes.weights

    @property
    def has_copies(self) -> bool:
        """Whether the optimizer keeps float32 copies of what it updates."""
        return self.run.dtypes.master

    @cached_property
    def model_bytes(self) -> Mapping[str, int]:
        """What the rank has of parameters and gradients, from the backward pass to `step()`."""
        return self._kept_bytes(self.groups)

    def _kept_bytes(self, groups: zero.Groups) -> dict[str, int]:
        """The same for some groups of parameters."""
        stage, ranks = self.sharing.stage, self.sharing.data
        return zero.kept_bytes(stage, groups, ranks, dtype=self.dtype)

    def parameters_bytes(self) -> int:
        return self.model_bytes[zero.PARAMETERS]

    @cached_property
    def _updated(self) -> list[int]:
        """Sizes of the tensors that this rank's optimizer updates."""
        numels = [math.prod(shape) for shape in self.shapes]
        if self.sharing.stage == 1:
            numels = zero.greedy_partition(numels, self.sharing.data)[0]
        return [ITEM_BYTES[self.run.dtypes.state_dtype] * numel for numel in numels]

    def states_bytes(self) -> int:
        if self.sharing.optimizer_on_host:
            return 0
        copies_bytes = sum(map(block_bytes, self._updated)) if self.has_copies else 0
        states = state_bytes(self.run.optimizer, self._updated, self.run.implementation)
        return copies_bytes + states

    def gradients_bytes(self, moment: Moment) -> int:
        made_bytes = moment.bytes_by_category["gradients"]
        if self.sharing.optimizer_on_host and self.sharing.data == 1:  # each leaves as it comes
            largest = max(block_bytes(tensor_bytes(shape, self.dtype)) for shape in self.shapes)
            return min(made_bytes, largest)
        return made_bytes if self.sharing.data == 1 else self.model_bytes[zero.GRADIENTS]

    def update_bytes(self) -> int:
        """What the optimizer's step takes for a while."""
        if self.sharing.optimizer_on_host:
            return 0
        if not self.has_copies:
            return self._extra_bytes(self._updated)
        if self.sharing.stage == 1:  # one parameter after the other, with its gradient in float32
            largest = max(map(block_bytes, self._updated))
            return largest + self._extra_bytes([largest])
        return sum(map(block_bytes, self._updated)) + self._extra_bytes(self._updated)

    def _extra_bytes(self, sizes_bytes: list[int]) -> int:
        if not self.run.optimizer.startswith("adam"):
            return 0
        return adam_step_extra_bytes(sizes_bytes, self.run.implementation)

    def borrowed_bytes(self, moment: Moment) -> int:
        """What is gathered from other ranks, or on its way to them."""
        return 0

    def gathering(self, ends: Moment) -> Iterator[Moment]:
        """Moments at which parameters are gathered, beside those of one GPU."""
        yield from ()

    def loss_of_parts(self, ends: Moment) -> Moment:
        """The logarithms of softmax, where each rank has a part of the vocabulary.

        They are computed in float32: the logits, these less their largest, and the result; then in
        the logits' dtype. Source: `_log_softmax` in torch/distributed/tensor/parallel/loss.py.

        Args:
            ends: the end of the forward pass.
        """
        run, vocabulary = self.run, self.sizes.vocabulary
        wide = run.rows_bytes(vocabulary, "float32")
        logits = run.rows_bytes(vocabulary, run.dtypes.compute)
        amounts = dict(ends.bytes_by_category)
        if run.dtypes.autocast:  # not yet cast for the second half of the loss
            amounts["activations"] -= wide
        # In float32 the first one is the logits, and the last one is kept.
        wide_ones = 2 if run.dtypes.compute == "float32" else 3
        amounts["temporaries"] = logits + wide_ones * wide + self.more_temporaries_bytes(ends)
        return replace(ends, name="logarithms of softmax", bytes_by_category=amounts)

    # ---- On the host ----

    def activations_bytes(self, moment: Moment, following: Moment | None) -> int:
        """What is there of what the forward pass has kept of this micro-batch.

        From the host comes back what the op under way needs, which is what it then lets go.

        Args:
            moment: which one.
            following: the next one.
        """
        there = moment.bytes_by_category["activations"]
        if not self.sharing.activations_on_host:
            return there
        if moment.phase == "forward":
            return self._loss_kept_bytes() + self._casts_bytes()
        ahead = self.sizes.layers - moment.layers_done - (moment.phase == "layer")
        others = sum(kept.embedding_kept(self.sizes, self.run).values())
        others += ahead * kept.layer_kept_bytes(self.sizes, self.run)
        if following is not None and _is_same_part(moment, following):
            others = max(others, following.bytes_by_category["activations"])
        if self.run.checkpointing == "full" and moment.phase == "layer":
            others -= kept.layer_kept_bytes(self.sizes, self.run)
        # Autocast keeps casts of weights; around a pipeline it lasts as long as the schedule.
        casts = self._casts_bytes() if self.sharing.pipeline > 1 else 0
        return max(there - others, 0) + casts

    def _loss_kept_bytes(self) -> int:
        """What the loss keeps, which has just been made when the forward pass ends."""
        if not self.sizes.predicts:
            return 0
        dtypes = self.run.dtypes
        made_in = [dtypes.compute, "float32"] if dtypes.autocast else [dtypes.compute]
        return sum(self.run.rows_bytes(self.sizes.vocabulary, dtype) for dtype in made_in)

    # ---- Pipeline ----

    def buffers_bytes(self) -> int:
        """What a stage receives into, and sends: as in `vramlab_course.formulas.pipeline`."""
        if self.sharing.pipeline == 1:
            return 0
        ends = (not self.sizes.embeds) + (not self.sizes.predicts)
        buffers = self.sharing.micro_batches * ends
        if self.later and not self.sizes.embeds and self.sharing.schedule == "1F1B":
            buffers += 1  # the gradient that was sent last, until the next one is
        return buffers * self._stream_bytes()

    def in_flight_bytes(self) -> int:
        """What stages keep of other micro-batches, and of this one beside its activations."""
        if self.sharing.pipeline == 1:
            return 0
        sharing = self.sharing
        others = max(sharing.in_flight_later if self.later else sharing.in_flight, 1) - 1
        own = self._output_bytes()
        if sharing.activations_on_host:
            return others * own + own
        kept_bytes = kept.kept_bytes(self.sizes, self.run)
        if not self.sizes.embeds:  # what the first norm keeps is the buffer that was received into
            own -= self._stream_bytes()
        return others * (kept_bytes - self._casts_bytes() + own) + own

    def _casts_bytes(self) -> int:
        """Casts of weights by autocast, which all micro-batches of a step share."""
        if not self.run.dtypes.autocast or self.run.checkpointing == "full":
            return 0
        head = kept.head_kept(self.sizes, self.run).get("head: cast of its weight", 0)
        return self.sizes.layers * kept.layer_casts_bytes(self.sizes, self.run) + head

    def more_temporaries_bytes(self, moment: Moment) -> int:
        """What is there beside, or not beside, the temporaries of one micro-batch alone."""
        if self.sharing.pipeline == 1:
            # The gradients of the sum of losses and of its share in the mean.
            divides = self.sharing.micro_batches > 1 and moment.name == "loss's gradient, float32"
            return block_bytes(4) if divides else 0
        if moment.phase == "forward":  # counted with what is in flight
            return -self._output_bytes()
        if moment.phase == "layer" and not moment.layers_done and not self.sizes.predicts:
            return -self._stream_bytes()  # it came into a buffer
        return 0

    def _output_bytes(self) -> int:
        """What a stage puts out for a micro-batch."""
        if self.sizes.predicts:
            return self.run.rows_bytes(self.sizes.vocabulary, self.run.dtypes.compute)
        return self._stream_bytes()

    def _stream_bytes(self) -> int:
        """What goes from stage to stage."""
        return self.run.between_bytes(self.sizes.width, self.run.dtypes.stream)


class _Sharded(_Replicated):
    """A rank that has shards of parameters, gradients and states: ZeRO-2 and 3, by FSDP2.

    Each layer is a group of its own, and what lies outside of them (embedding, last norm, head) is
    the root's. The root's parameters stay gathered from the beginning of the forward pass to the
    end of the backward pass.
    """

    @property
    def gradients_stay(self) -> bool:
        # In a pipeline whole gradients add up, until the last micro-batch's are scattered.
        return self.sharing.pipeline > 1 and self.later

    @property
    def dtype(self) -> str:
        return self.run.dtypes.state_dtype  # FSDP2's mixed precision keeps float32 shards

    @property
    def has_copies(self) -> bool:
        return False  # the shards are what copies would be

    def _kept_bytes(self, groups: zero.Groups) -> dict[str, int]:
        shards = super()._kept_bytes(groups)
        return dict.fromkeys(shards, 0) if self.sharing.optimizer_on_host else shards

    @cached_property
    def _updated(self) -> list[int]:
        ranks = self.sharing.data
        shards = [(zero.padded_rows(rows, ranks), *others) for rows, *others in self.shapes]
        return [tensor_bytes(shape, self.dtype) for shape in shards]

    def gradients_bytes(self, moment: Moment) -> int:
        """Shards of layers that are done, and whole gradients of what is under way."""
        all_shards = self.model_bytes[zero.GRADIENTS]
        if moment.updates:
            return all_shards
        whole = moment.bytes_by_category["gradients"]
        if self.gradients_stay:
            return whole
        layer = sum(
            block_bytes(tensor_bytes(shape, self.run.dtypes.weights))
            for shape in self.sizes.layer_shapes()
        )
        under_way = whole - moment.layers_done * layer
        if self.later:
            return under_way + all_shards
        layer_shards = self._kept_bytes(self.groups[:1])[zero.GRADIENTS]
        return under_way + moment.layers_done * layer_shards

    def borrowed_bytes(self, moment: Moment) -> int:
        """Whole parameters that are there, and what an all-gather or a reduce-scatter works on.

        In the backward pass of a layer the parameters of the one below it are already gathered into
        a buffer, and the gradients of the one above it lie in another, to be scattered.
        """
        root, layer = self._gathered_bytes(-1), self._gathered_bytes(0)
        layers, done = self.sizes.layers, moment.layers_done
        if moment.phase == "update":
            return 0
        if self.sharing.pipeline > 1:
            return root + self._layers_in_pipeline(moment) * layer
        scattered = layer if done else 0
        if self.sharing.stage == 2:
            # In the forward pass, what the last all-gather has put out is still there.
            output = layer if moment.phase == "forward" else 0
            return root + (layers - done) * layer + output + scattered
        if moment.phase == "layer":
            ahead = layer if done < layers - 1 else 0
            return root + layer + ahead + scattered
        # What the last all-gather has put out, or the next one, or what is scattered last.
        return root + layer

    def _layers_in_pipeline(self, moment: Moment) -> int:
        """How many layers are there as whole parameters, or in what an all-gather has put out.

        A stage scatters nothing before its last micro-batch, and what backward has gathered stays
        gathered, until the forward pass of the next micro-batch is through with it.
        """
        layers, done = self.sizes.layers, moment.layers_done
        if self.sharing.stage == 2:
            return layers
        if moment.phase == "layer":
            return done + 1 + (done < layers - 1)
        return layers if moment.phase == "embedding" else 1

    def gathering(self, ends: Moment) -> Iterator[Moment]:
        """The last layer is about to begin: outputs of two all-gathers are still there.

        Args:
            ends: the end of the forward pass.
        """
        if self.sharing.pipeline > 1 and self.sharing.stage == 2:
            return  # that is so only for the first micro-batch, when no other one is in flight
        before = self.sizes.layers - 1
        whole = self.sizes.layers if self.sharing.stage == 2 else 1
        gathered = self._gathered_bytes(-1) + (whole + 2) * self._gathered_bytes(0)
        activations = sum(kept.embedding_kept(self.sizes, self.run).values())
        activations += before * kept.layer_kept_bytes(self.sizes, self.run)
        yield replace(
            ends,
            name="the last layer is gathered",
            bytes_by_category={
                **ends.bytes_by_category,
                BORROWED: gathered + self.buffers_bytes(),
                "activations": activations + self.in_flight_bytes(),
                "temporaries": self._stream_bytes(),
            },
        )

    def _gathered_bytes(self, group: int) -> int:
        return zero.gathered_bytes([self.groups[group]], self.sharing.data, self.run.dtypes.weights)
