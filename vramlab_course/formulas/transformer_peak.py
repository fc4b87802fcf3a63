"""The peak of a transformer's training step: the largest of a few moments, each a sum of terms.

The moments are those at which a step of `vramlab.programs.transformer.Transformer` can
peak, from the second step on: the optimizer's states are there, the gradients are gone.

    the forward pass ends      logits beside everything that is kept
    the loss's gradient        two or three tensors of the logits' size
    the head's gradient        the gradient of the largest weight
    feed-forward, attention    of the last layer, where most is kept, and of the first ones, where
                               most gradients are there
    the embedding's gradient   all gradients, and that of a tied embedding three times
    the optimizer's step       all gradients, and what step() takes for a while

Source: the order in which autograd and the kernels of torch 2.13 take and give back, read off
recorded timelines of that model, op by op, and `vramlab.kernels` for what kernels take.

Known limitations: sorting tokens for the embedding's gradient and the workspaces of
memory-efficient attention's backward pass are left out. Where blocks keep rests, a run takes more
than the sum of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.reductions import COLUMNS_PER_BLOCK, column_sum_bytes
from vramlab.cuda_rules.storage import block_bytes, tensor_bytes
from vramlab.cuda_rules.workspaces import kept_by_linear_bytes
from vramlab.programs import transformer_memory as kept
from vramlab.programs.transformer_memory import Run, Sizes

CATEGORIES = (
    "parameters",
    "optimizer states",
    "gradients",
    "inputs",
    "workspaces",
    "activations",
    "temporaries",
)
"""As `vramlab.measure.Category` names them."""


@dataclass(frozen=True)
class Gpu:
    """The facts of a GPU that a peak depends on."""

    compute_capability: tuple[int, int]
    multiprocessors: int
    threads_per_multiprocessor: int
    torch_version: tuple[int, int] = (2, 13)

    @classmethod
    def of(cls, model: GPUModel) -> Gpu:
        """The facts of a GPU of the catalogue."""
        return cls(
            model.compute_capability,
            model.multiprocessors,
            model.max_threads_per_multiprocessor,
        )

    def workspaces_bytes(self, sizes: Sizes, run: Run) -> int:
        """What cuBLAS keeps: for the forward pass, and for autograd's thread.

        A bias is added in the forward pass, and where that is run again, on autograd's thread.
        """
        again = run.checkpointing == "full"
        return sum(
            kept_by_linear_bytes(self.compute_capability, self.torch_version, bias)
            for bias in (sizes.bias, sizes.bias and again)
        )

    def column_sum_bytes(self, rows: int, columns: int) -> int:
        """What summing a gradient (rows, columns) for a bias takes while it runs; of few, nothing.

        Known limitation: nothing for columns that are not a multiple of 4.
        """
        if columns < COLUMNS_PER_BLOCK or columns % 4:
            return 0
        taken = column_sum_bytes(
            rows, columns, self.multiprocessors, self.threads_per_multiprocessor
        )
        return sum(taken)


Phase = Literal["forward", "head", "layer", "embedding", "update"]


@dataclass(frozen=True)
class Moment:
    """One moment of a training step, and where the bytes are."""

    name: str
    bytes_by_category: Mapping[str, int]
    """By the names in `CATEGORIES`."""
    layers_done: int = 0
    """How many layers have had their backward pass."""
    phase: Phase = "head"
    """What is under way: the forward pass; or in the backward pass the loss and the head, a layer,
    or the embedding; or the optimizer's step."""

    @property
    def updates(self) -> bool:
        """Whether it is the optimizer's step."""
        return self.phase == "update"

    @property
    def total_bytes(self) -> int:
        """Allocated bytes, but for rests of blocks."""
        return sum(self.bytes_by_category.values())


def check_kernels(run: Run, gpu: Gpu) -> None:
    """Raise ValueError if the GPU has no kernel of the run's attention.

    Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, PyTorch 2.13.
    """
    compute = run.dtypes.compute
    lacking = (run.attention == "flash" and gpu.compute_capability < (8, 0)) or (
        run.attention == "efficient" and compute == "bfloat16" and gpu.compute_capability < (8, 0)
    )
    if lacking:
        major, minor = gpu.compute_capability
        raise ValueError(
            f"a GPU of compute capability {major}.{minor} has no kernel of {run.attention} "
            f"attention for {compute}: choose another attention, or another precision"
        )


def peak(sizes: Sizes, run: Run, gpu: Gpu, *, gradients_stay: bool = False) -> Moment:
    """The largest moment of a training step; see `moments`."""
    found = moments(sizes, run, gpu, gradients_stay=gradients_stay)
    return max(found, key=lambda moment: moment.total_bytes)


def moments(
    sizes: Sizes, run: Run, gpu: Gpu, *, gradients_stay: bool = False
) -> tuple[Moment, ...]:
    """All moments of a training step at which it can peak, in the order in which they come.

    Args:
        sizes: of the model.
        run: how it is trained.
        gpu: where.
        gradients_stay: there are gradients of all parameters before the backward pass begins, to
            which it adds: those of earlier micro-batches, or DDP's buckets.
    """
    return tuple(_Step(sizes, run, gpu, gradients_stay).moments())


class _Step:
    """One training step, with the sizes that its moments have in common."""

    def __init__(self, sizes: Sizes, run: Run, gpu: Gpu, gradients_stay: bool) -> None:
        self.sizes, self.run, self.gpu = sizes, run, gpu
        self.gradients_stay = gradients_stay
        dtypes = run.dtypes
        self.autocast = dtypes.autocast
        self.x = run.rows_bytes(sizes.width, dtypes.compute)
        self.x_stream = run.between_bytes(sizes.width, dtypes.stream)
        self.x_mask = run.between_bytes(sizes.width, "bool") if run.dropout else 0
        self.attended = run.rows_bytes(sizes.attended_width, dtypes.compute)
        self.inner = run.rows_bytes(sizes.inner, dtypes.compute)
        self.up = run.rows_bytes(sizes.up_width, dtypes.compute)
        self.logits = run.rows_bytes(sizes.vocabulary, dtypes.compute)
        copies_bytes = kept.parameters_bytes(sizes) if dtypes.master else 0
        self.fixed = {
            "parameters": kept.parameters_bytes(sizes, dtypes.weights) + copies_bytes,
            "optimizer states": kept.states_bytes(sizes, run) - copies_bytes,
            "inputs": kept.input_bytes(sizes, run),
            "workspaces": gpu.workspaces_bytes(sizes, run),
        }
        self.gradients = kept.parameters_bytes(sizes, dtypes.weights)
        self.embedding = self.weight((sizes.vocabulary, sizes.width))
        self.layer_gradients = sum(map(self.weight, sizes.layer_shapes()))
        self.norm_gradients = sum(map(self.weight, sizes.norm_shapes()))
        self.scalars = 2 * block_bytes(4)  # the loss, and its gradient
        self.kept_embedding = sum(kept.embedding_kept(sizes, run).values())
        self.kept_head = sum(kept.head_kept(sizes, run).values())
        self.kept_layers = sizes.layers * kept.layer_kept_bytes(sizes, run)

    def weight(self, shape: tuple[int, ...]) -> int:
        """Gradient of a parameter."""
        return block_bytes(tensor_bytes(shape, self.run.dtypes.weights))

    def half(self, shape: tuple[int, ...]) -> int:
        """Gradient of a Linear layer's weight as the product makes it, before it is cast."""
        return block_bytes(tensor_bytes(shape, self.run.dtypes.compute))

    def moment(
        self,
        name: str,
        activations: int,
        temporaries: int = 0,
        gradients: int = 0,
        layers_done: int = 0,
        phase: Phase = "head",
    ) -> Moment:
        amounts = {
            **self.fixed,
            "activations": activations,
            "temporaries": temporaries,
            "gradients": self.gradients if self.gradients_stay else gradients,
        }
        ordered = {name: amounts[name] for name in CATEGORIES}
        return Moment(name, ordered, layers_done, phase)

    def moments(self) -> Iterator[Moment]:
        if self.sizes.predicts:
            yield from self.loss()
        else:
            everything = self.kept_embedding + self.kept_layers
            passing = self.x_stream + self.in_cache()
            yield self.moment("the forward pass ends", everything, passing, phase="forward")
        last = self.sizes.layers - 1
        names = {0: "first layer", 1: "second layer", last - 1: "last layer but one"}
        names[last] = "last layer"
        for number in sorted(names, reverse=True):
            if 0 <= number <= last:
                yield from self.layer(number, names[number])
        if self.sizes.embeds:
            yield from self.embedding_gradient()
        extra_bytes = kept.step_extra_bytes(self.sizes, self.run)
        loss_bytes = self.scalars // 2 if self.sizes.predicts else 0
        yield self.moment(
            "optimizer's step",
            loss_bytes,
            extra_bytes,
            self.gradients,
            self.sizes.layers,
            "update",
        )

    def in_cache(self) -> int:
        """Casts of biases, and of weights that nobody keeps, until autocast ends."""
        if not self.autocast:
            return 0
        biases = sum(block_bytes(2 * rows) for rows, _ in self.sizes.matrices)
        cached = self.sizes.layers * biases if self.sizes.bias else 0
        if self.run.checkpointing == "full":
            cached += self.sizes.layers * kept.layer_casts_bytes(self.sizes, self.run)
        return cached

    # ---- The loss and the head ----

    def loss(self) -> Iterator[Moment]:
        """From the end of the forward pass to the gradient of the head's input."""
        everything = self.kept_embedding + self.kept_layers + self.kept_head
        passing = self.logits + self.in_cache()
        yield self.moment("the forward pass ends", everything, passing, phase="forward")
        one = self.scalars // 2
        wide = self.run.rows_bytes(self.sizes.vocabulary, "float32")
        if self.autocast:
            yield self.moment("loss's gradient, float32", everything, wide + one)
            yield self.moment("loss's gradient", everything - wide, wide + self.logits + one)
            everything -= wide + one
        else:
            everything -= one  # the divisor
            yield self.moment("loss's gradient", everything, 2 * self.logits + one)
        everything -= self.logits
        head = (self.sizes.vocabulary, self.sizes.width)
        yield self.moment("head's gradient", everything, self.logits + self.half(head) + self.x)
        if self.autocast:
            everything -= self.half(head) + self.x  # the cast weight, and the head's input
            gradients = self.half(head) + self.weight(head)
            yield self.moment("head's gradient, float32", everything, gradients + self.x)

    # ---- Layers ----

    def layer(self, number: int, name: str) -> Iterator[Moment]:
        """The backward pass of one layer; 0 is the first."""
        return _LayerBackward(self, number, name).moments()

    def embedding_gradient(self) -> Iterator[Moment]:
        """The end of the backward pass: all gradients, and the embedding's."""
        loss_bytes = block_bytes(4) if self.sizes.predicts else 0
        one = self.scalars // 2
        now: tuple[int, Phase] = self.sizes.layers, "embedding"
        others = self.gradients - self.embedding
        passing = one + self.x_stream
        name = "embedding's gradient"
        # Where gradients stay, this one is made beside them, and added.
        made = self.embedding if self.gradients_stay else 0
        if not self.sizes.shares_head:
            yield self.moment(name, loss_bytes, passing + made, self.gradients, *now)
            return
        # The head's part of it waits. Under autocast it was cast, and takes the sum; else it is a
        # view, and the sum is a third tensor.
        if self.autocast:
            waiting = passing + self.embedding + made
            yield self.moment(name, loss_bytes, waiting, self.gradients, *now)
            return
        both = 2 * self.embedding
        yield self.moment(name, loss_bytes, passing + both, others, *now)
        yield self.moment(f"{name}, summed", loss_bytes, one + both + made, self.gradients, *now)


class _LayerBackward:
    """The backward pass of one layer, as an account of what has come and gone.

    Attributes:
        gone: what the layer has given back of what it keeps.
        gradients: of parameters that are done.
    """

    def __init__(self, step: _Step, number: int, name: str) -> None:
        self.step, self.sizes, self.run, self.name = step, step.sizes, step.run, name
        sizes, run = step.sizes, step.run
        self.done = sizes.layers - 1 - number
        self.gradients = self.done * step.layer_gradients
        self.passing = step.x_stream  # the gradient of the layer's output
        self.below = step.kept_embedding + number * kept.layer_kept_bytes(sizes, run)
        if sizes.predicts:
            self.gradients += step.norm_gradients
            self.passing += block_bytes(4)  # the loss's gradient
            self.below += block_bytes(4)  # the loss
        if sizes.shares_head and not (step.autocast and not step.gradients_stay):
            self.passing += step.embedding  # the head's part of it, not yet a gradient
        elif sizes.predicts:
            self.gradients += step.embedding
        self.own = sum(kept.layer_terms(sizes, run).values())
        self.again = 0
        self.recomputed = run.checkpointing == "full"
        if self.recomputed:  # only its input was kept, which the first norm needs
            self.below += step.x_stream
            self.own -= step.x_stream
        self.gone = 0

    def at(self, where: str, more: int, made: int = 0) -> Moment:
        """A moment with `more` temporaries than the gradients that are passing.

        `made` are gradients of parameters; under autocast they have still to be cast.
        """
        gradients = self.gradients
        if self.step.autocast or self.step.gradients_stay:
            more += made
        else:
            gradients += made
        own = self.own - self.gone
        temporaries = self.passing + more + self.again
        activations = self.below
        if self.recomputed:
            temporaries += own
        else:
            activations += own
        name = f"{self.name}: {where}"
        return self.step.moment(name, activations, temporaries, gradients, self.done, "layer")

    def moments(self) -> Iterator[Moment]:
        step, sizes, run = self.step, self.sizes, self.run
        _, _, up, down = sizes.matrices
        # Dropout gives its gradient in a tensor of its own; so does a cast.
        branch = step.x if run.dropout or step.autocast else 0
        if self.recomputed:
            yield from self.recomputing()
        self.gone += step.x_mask
        yield from self.product("feed-forward, second layer", down, branch + step.inner, step.inner)
        if sizes.activation == "gelu":
            yield self.at("GELU", 2 * step.inner)
            self.gone += step.inner
        else:
            # The gradients of the product and of both its factors.
            yield self.at("SwiGLU", 3 * step.inner)
            self.gone += step.inner + step.up
        yield from self.product("feed-forward, first layer", up, step.up + step.x, step.x)
        self.gone = sum(kept.feed_forward_kept(sizes, run).values())
        self.gradients += step.norm_gradients
        self.gone += step.x_mask
        yield from self.product(
            "attention, projection",
            sizes.matrices[1],
            branch + step.attended,
            # Fused kernels need their output, the projection's input, once more.
            0 if run.attention in ("flash", "efficient") else step.attended,
        )
        yield from self.core()
        self.again = 0
        still_there = sum(kept.norm_kept(sizes, run).values()) + step.x
        still_there += step.half(sizes.matrices[0]) if step.autocast else 0
        still_there -= step.x_stream if self.recomputed else 0
        self.gone = self.own - still_there
        qkv = run.rows_bytes(sizes.qkv_width, run.dtypes.compute)
        yield from self.product(
            "attention, query, key, value", sizes.matrices[0], qkv + step.x, step.x
        )

    def product(
        self, where: str, matrix: tuple[int, int], more: int, input_bytes: int
    ) -> Iterator[Moment]:
        """A Linear layer: gradients of its input, its weight, then its bias.

        Its input and the cast of its weight go when all is done, but if they were recomputed,
        before the bias's gradient is summed.
        """
        step = self.step
        made, shape_of_bias = step.half(matrix), (matrix[0],)
        operands = input_bytes + (made if step.autocast else 0)
        summed = step.gpu.column_sum_bytes(self.run.rows, matrix[0]) if self.sizes.bias else 0
        bias = step.half(shape_of_bias) if self.sizes.bias else 0
        if self.recomputed:
            yield self.at(f"{where}, weight", more, made)
            self.gone += operands
        yield self.at(where, more + summed, made + bias)
        if not self.recomputed:
            self.gone += operands
        self.gradients += step.weight(matrix)
        if self.sizes.bias:
            self.gradients += step.weight(shape_of_bias)

    def core(self) -> Iterator[Moment]:
        """Between the Linear layers of attention."""
        step, sizes, run = self.step, self.sizes, self.run
        if run.attention in ("flash", "efficient"):
            more = step.attended + run.rows_bytes(sizes.qkv_width, run.dtypes.compute)
            if run.checkpointing == "selective":
                self.again = sum(kept.core_kept(sizes, run).values()) - sum(
                    kept.core_inputs(sizes, run).values()
                )
            if run.attention == "flash":
                more += self.flash_bytes()
            yield self.at("attention kernel", more)
            return
        operand = "float32" if run.attention == "math" else run.dtypes.compute
        scores = run.scores_bytes(sizes.heads, operand)
        wide = run.scores_bytes(sizes.heads, run.scores_dtype)
        vector = run.rows_bytes(sizes.attended_width, operand)
        if run.checkpointing == "selective":
            self.again = sum(kept.core_kept(sizes, run).values()) - step.attended
            yield self.at("attention again", step.attended + self.unkept_scores_bytes())
        yield self.at("attention, values", 2 * vector + scores)
        used = scores if run.dropout or scores != wide else 0
        used += run.scores_bytes(sizes.heads, "bool") if run.dropout else 0
        if run.checkpointing == "selective":
            self.again -= used
        else:
            self.gone += used
        # Its gradient, that times the softmax, and the gradient of its input: of float16, which the
        # kernel reads as it is, again in float16.
        read = scores if operand == "float16" else wide
        yield self.at("attention, softmax", 2 * wide + read)

    def flash_bytes(self) -> int:
        """What flash attention's backward pass takes: its query's gradient in float32, and more."""
        run, sizes = self.run, self.sizes
        rows = run.batch * sizes.heads * (-(-run.sequence // 128) * 128)
        multiple = 32 if sizes.head_size <= 128 else 64
        head_size = -(-sizes.head_size // multiple) * multiple
        taken = block_bytes(4 * rows) + block_bytes(4 * rows * head_size)
        return taken + (2 * self.step.attended if sizes.kv != sizes.heads else 0)

    def unkept_scores_bytes(self) -> int:
        """What the forward pass holds beside what it keeps, when most scores are there."""
        run, sizes = self.run, self.sizes
        if run.attention == "math":  # in its softmax, which makes rows without a key safe
            scores = run.scores_bytes(sizes.heads, "float32")
            taken = scores + run.scores_bytes(sizes.heads, "bool")
            if run.dtypes.compute != "float32":  # query and key in float32, before they are scaled
                taken += 2 * run.rows_bytes(sizes.attended_width, "float32")
            core = kept.core_kept(sizes, run)
            not_yet = ("dropout mask of softmax", "softmax as the product's operand")
            return taken - sum(core.get(name, 0) for name in not_yet)
        before = run.scores_bytes(sizes.heads, run.dtypes.compute)
        if not (run.dropout and self.step.autocast):
            return before
        return before + run.scores_bytes(sizes.heads, "float32")  # dropout's result, to be cast

    def recomputing(self) -> Iterator[Moment]:
        """The layer's forward pass again, when its attention's scores are there."""
        step, run, sizes = self.step, self.run, self.sizes
        if run.attention in ("flash", "efficient"):
            return
        later = sum(kept.feed_forward_kept(sizes, run).values()) + step.x_mask
        later += step.half(sizes.matrices[1]) if step.autocast else 0
        more = run.rows_bytes(sizes.qkv_width, run.dtypes.compute) + self.unkept_scores_bytes()
        if step.autocast:  # the norm's output in float32; the gradient that began it, cast
            more += step.x_stream + step.x
        if run.attention == "math":
            later += step.attended
        else:
            # The product's result, before it is laid out as the projection's input.
            more += step.attended
        self.gone += later
        yield self.at("attention again", more)
        self.gone -= later
