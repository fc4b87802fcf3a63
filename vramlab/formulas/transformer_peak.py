"""The peak of a transformer's training step: the largest of a few moments, each a sum of terms.

The moments are those at which a step of `vramlab.experiments.transformer_model.Transformer` can
peak, from the second step on: the optimizer's states are there, the gradients are gone.

    the forward pass ends      logits beside everything that is kept
    the loss's gradient        two or three tensors of the logits' size
    the head's gradient        the gradient of the largest weight
    feed-forward, attention    of the last layer, where most is kept, and of the first, where most
                               gradients are there
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

from vramlab.catalogue import GPUModel
from vramlab.formulas import transformer as kept
from vramlab.formulas.reductions import COLUMNS_PER_BLOCK, column_sum_bytes
from vramlab.formulas.storage import block_bytes, tensor_bytes
from vramlab.formulas.transformer import Run, Sizes
from vramlab.formulas.workspaces import cublas_bytes

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

    @property
    def workspaces_bytes(self) -> int:
        """What cuBLAS keeps: for the forward pass, and for autograd's thread."""
        return 2 * cublas_bytes(self.compute_capability, self.torch_version)

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


@dataclass(frozen=True)
class Moment:
    """One moment of a training step, and where the bytes are."""

    name: str
    bytes_by_category: Mapping[str, int]
    """By the names in `CATEGORIES`."""

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


def peak(sizes: Sizes, run: Run, gpu: Gpu) -> Moment:
    """The largest moment of a training step."""
    return max(moments(sizes, run, gpu), key=lambda moment: moment.total_bytes)


def moments(sizes: Sizes, run: Run, gpu: Gpu) -> tuple[Moment, ...]:
    """All moments of a training step at which it can peak, in the order in which they come."""
    return tuple(_Step(sizes, run, gpu).moments())


class _Step:
    """One training step, with the sizes that its moments have in common."""

    def __init__(self, sizes: Sizes, run: Run, gpu: Gpu) -> None:
        self.sizes, self.run, self.gpu = sizes, run, gpu
        dtypes = run.dtypes
        self.autocast = dtypes.autocast
        self.x = run.rows_bytes(sizes.width, dtypes.compute)
        self.x_stream = run.rows_bytes(sizes.width, dtypes.stream)
        self.x_mask = run.rows_bytes(sizes.width, "bool") if run.dropout else 0
        self.inner = run.rows_bytes(sizes.inner, dtypes.compute)
        self.up = run.rows_bytes(sizes.up_width, dtypes.compute)
        self.logits = run.rows_bytes(sizes.vocabulary, dtypes.compute)
        copies_bytes = kept.parameters_bytes(sizes) if dtypes.master else 0
        self.fixed = {
            "parameters": kept.parameters_bytes(sizes, dtypes.weights) + copies_bytes,
            "optimizer states": kept.states_bytes(sizes, run) - copies_bytes,
            "inputs": kept.input_bytes(run),
            "workspaces": gpu.workspaces_bytes,
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
        self, name: str, activations: int, temporaries: int = 0, gradients: int = 0
    ) -> Moment:
        amounts = {
            **self.fixed,
            "activations": activations,
            "temporaries": temporaries,
            "gradients": gradients,
        }
        return Moment(name, {name: amounts[name] for name in CATEGORIES})

    def moments(self) -> Iterator[Moment]:
        yield from self.loss()
        last, first = self.sizes.layers - 1, 0
        yield from self.layer(last, "last layer")
        if last != first:
            yield from self.layer(first, "first layer")
        yield from self.embedding_gradient()
        extra_bytes = kept.step_extra_bytes(self.sizes, self.run)
        yield self.moment("optimizer's step", self.scalars // 2, extra_bytes, self.gradients)

    # ---- The loss and the head ----

    def loss(self) -> Iterator[Moment]:
        """From the end of the forward pass to the gradient of the head's input."""
        everything = self.kept_embedding + self.kept_layers + self.kept_head
        in_cache = 0
        if self.autocast:  # casts of biases, and of weights that nobody keeps, until autocast ends
            biases = sum(block_bytes(2 * rows) for rows, _ in self.sizes.matrices)
            in_cache += self.sizes.layers * biases if self.sizes.bias else 0
            if self.run.checkpointing == "full":
                in_cache += self.sizes.layers * kept.layer_casts_bytes(self.sizes, self.run)
        yield self.moment("the forward pass ends", everything, self.logits + in_cache)
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
        loss_bytes, one = block_bytes(4), self.scalars // 2
        others = self.gradients - self.embedding
        passing = one + self.x_stream
        if not self.sizes.tied:
            yield self.moment("embedding's gradient", loss_bytes, passing, self.gradients)
            return
        # The head's part of it waits. Under autocast it was cast, and takes the sum; else it is a
        # view, and the sum is a third tensor.
        if self.autocast:
            made = passing + self.embedding
            yield self.moment("embedding's gradient", loss_bytes, made, self.gradients)
            return
        both = 2 * self.embedding
        yield self.moment("embedding's gradient", loss_bytes, passing + both, others)
        yield self.moment("embedding's gradient, summed", loss_bytes, one + both, self.gradients)


class _LayerBackward:
    """The backward pass of one layer, as an account of what has come and gone.

    Attributes:
        gone: what the layer has given back of what it keeps.
        gradients: of parameters that are done.
    """

    def __init__(self, step: _Step, number: int, name: str) -> None:
        self.step, self.sizes, self.run, self.name = step, step.sizes, step.run, name
        sizes, run = step.sizes, step.run
        self.gradients = (sizes.layers - 1 - number) * step.layer_gradients + step.norm_gradients
        self.passing = block_bytes(4) + step.x_stream  # the gradient of the layer's output
        if sizes.tied and not step.autocast:
            self.passing += step.embedding  # the head's part of it, not yet a gradient
        else:
            self.gradients += step.embedding
        self.below = step.kept_embedding + number * kept.layer_kept_bytes(sizes, run)
        self.below += block_bytes(4)  # the loss
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
        if self.step.autocast:
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
        return self.step.moment(f"{self.name}: {where}", activations, temporaries, gradients)

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
            yield self.at("SwiGLU", 4 * step.inner)
            self.gone += step.inner + step.up
        yield from self.product("feed-forward, first layer", up, step.up + step.x, step.x)
        self.gone = sum(kept.feed_forward_kept(sizes, run).values())
        self.gradients += step.norm_gradients
        self.gone += step.x_mask
        yield from self.product(
            "attention, projection",
            sizes.matrices[1],
            branch + step.x,
            # Fused kernels need their output, the projection's input, once more.
            0 if run.attention in ("flash", "efficient") else step.x,
        )
        yield from self.core()

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
            more = step.x + run.rows_bytes(sizes.qkv_width, run.dtypes.compute)
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
        vector = run.rows_bytes(sizes.width, operand)
        if run.checkpointing == "selective":
            self.again = sum(kept.core_kept(sizes, run).values()) - step.x
            yield self.at("attention again", step.x + self.unkept_scores_bytes())
        yield self.at("attention, values", 2 * vector + scores)
        if run.dropout or scores != wide:
            self.gone += scores
        yield self.at("attention, softmax", 2 * wide)

    def flash_bytes(self) -> int:
        """What flash attention's backward pass takes: its query's gradient in float32, and more."""
        run, sizes = self.run, self.sizes
        rows = run.batch * sizes.heads * (-(-run.sequence // 128) * 128)
        head_size = -(-sizes.head_size // 32) * 32
        taken = block_bytes(4 * rows) + block_bytes(4 * rows * head_size)
        return taken + (2 * self.step.x if sizes.kv != sizes.heads else 0)

    def unkept_scores_bytes(self) -> int:
        """What the forward pass holds beside what it keeps, when most scores are there."""
        run, sizes = self.run, self.sizes
        if run.attention == "math":  # in its softmax, which makes rows without a key safe
            scores = run.scores_bytes(sizes.heads, "float32")
            taken = 2 * scores + run.scores_bytes(sizes.heads, "bool")
            if run.dtypes.compute != "float32":  # query and key in float32, before they are scaled
                taken += 2 * run.rows_bytes(sizes.width, "float32")
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
            later += step.x
        else:
            more += step.x  # the product's result, before it is laid out as the projection's input
        self.gone += later
        yield self.at("attention again", more)
        self.gone -= later
