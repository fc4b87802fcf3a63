"""What a transformer takes in training: parameters, states, and what its layers keep, term by term.

The model is `vramlab.programs.transformer.Transformer`: the layer that arXiv 2205.05198
§4.1 counts (norms in front, dropout after softmax and after each block), with today's variants.
What is only there for a moment is not here: `vramlab.planner` runs a step for it.

Sources: arXiv 2205.05198 for the terms; torch 2.13 for what each op keeps
(tools/autograd/derivatives.yaml) and in which dtype it works under autocast
(aten/src/ATen/autocast_mode.h). Every term is as large as the blocks that its tensors take, but for
unsplit remainders that the allocator does not split off.

Letters of shapes: B batch, S sequence, W width, H heads, G heads of keys and values, D head size,
F inner width of the feed-forward layer, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from vramlab.cuda_rules.sizes import ITEM_BYTES, block_bytes, tensor_bytes
from vramlab.programs.optimizer_states import (
    STATES,
    Implementation,
    adam_step_extra_bytes,
    state_bytes,
)

Activation = Literal["gelu", "swiglu"]
Norm = Literal["layer", "rms"]
Attention = Literal["eager", "math", "efficient", "flash"]
"""Step by step, or one of the backends of torch's scaled_dot_product_attention."""
ATTENTIONS: tuple[Attention, ...] = get_args(Attention)
Checkpointing = Literal["none", "selective", "full"]
"""What is recomputed in the backward pass: nothing; what happens between query, key, value and
their result; each layer."""
CHECKPOINTINGS: tuple[Checkpointing, ...] = get_args(Checkpointing)

SEED_BYTES = 2 * block_bytes(8)
"""Flash attention's seed and offset of the random numbers: two tensors of one int64."""

_COUNTS = ("vocabulary", "positions", "width", "heads", "kv_heads", "feed_forward", "head_dim")


@dataclass(frozen=True)
class Sizes:
    """Sizes of a transformer; those of GPT-2 (small) by default."""

    vocabulary: int = 50257
    positions: int = 1024
    width: int = 768
    layers: int = 12
    heads: int = 12
    kv_heads: int | None = None
    """Heads of keys and values; as many as `heads` if None."""
    feed_forward: int | None = None
    """Inner width of the feed-forward layer; four times the width if None."""
    activation: Activation = "gelu"
    norm: Norm = "layer"
    bias: bool = True
    """Whether Linear layers have one. The head never does."""
    tied: bool = True
    """Whether the head's weight is the token embedding."""
    causal: bool = True
    """A decoder; else an encoder, which needs no mask."""
    learned_positions: bool = True
    rotary: bool = False
    """Whether queries and keys are turned by their positions (arXiv 2104.09864)."""
    head_dim: int | None = None
    """Width of one head; `width / heads` if None."""
    embeds: bool = True
    """Whether it begins with the embedding. Stages of a pipeline do not, but the first."""
    predicts: bool = True
    """Whether it ends with the head. Stages of a pipeline do not, but the last."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"invalid {name} {count}: use at least 1")
        if self.head_dim is None and self.width % self.heads:
            raise ValueError(
                f"a width of {self.width} is not a multiple of {self.heads} heads: use a multiple "
                "such as "
                f"{-(-self.width // self.heads) * self.heads}, or other heads"
            )
        if self.heads % self.kv:
            raise ValueError(
                f"{self.heads} heads are not a multiple of {self.kv} key and value heads: use a "
                "number of key and value heads that divides them"
            )

    @property
    def kv(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.width // self.heads if self.head_dim is None else self.head_dim

    @property
    def attended_width(self) -> int:
        """All heads beside each other: what attention gives to its projection."""
        return self.heads * self.head_size

    @property
    def qkv_width(self) -> int:
        """Width of query, key and value beside each other."""
        return self.attended_width + 2 * self.kv * self.head_size

    @property
    def inner(self) -> int:
        """Inner width of the feed-forward layer."""
        return 4 * self.width if self.feed_forward is None else self.feed_forward

    @property
    def up_width(self) -> int:
        """What the first Linear layer of the feed-forward layer gives: SwiGLU's has a gate too."""
        return self.inner * (2 if self.activation == "swiglu" else 1)

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """Weights of a layer's Linear layers (outputs, inputs): qkv, project, up, down."""
        w = self.width
        return (self.qkv_width, w), (w, self.attended_width), (self.up_width, w), (w, self.inner)

    def norm_shapes(self) -> list[tuple[int, ...]]:
        """List the shapes of one norm's parameters."""
        return [(self.width,)] * (2 if self.norm == "layer" else 1)

    def layer_shapes(self) -> list[tuple[int, ...]]:
        """List the shapes of one layer's parameters, in the order of `parameters()`."""
        qkv, project, up, down = (
            [matrix, (matrix[0],)] if self.bias else [matrix] for matrix in self.matrices
        )
        return [*self.norm_shapes(), *qkv, *project, *self.norm_shapes(), *up, *down]

    def parameter_shapes(self) -> list[tuple[int, ...]]:
        """Return all parameters, in the order of `parameters()`; a tied head is no parameter."""
        return [
            *self.embedding_shapes(),
            *(self.layers * self.layer_shapes()),
            *self.head_shapes(),
        ]

    def embedding_shapes(self) -> list[tuple[int, ...]]:
        """List the shapes of the parameters in front of the first layer."""
        if not self.embeds:
            return []
        positions = [(self.positions, self.width)] if self.learned_positions else []
        return [(self.vocabulary, self.width), *positions]

    def head_shapes(self) -> list[tuple[int, ...]]:
        """List those behind the last layer: a norm, and the head if its weight is its own."""
        if not self.predicts:
            return []
        own = [] if self.shares_head else [(self.vocabulary, self.width)]
        return [*self.norm_shapes(), *own]

    @property
    def shares_head(self) -> bool:
        """Whether the head's weight is the token embedding's, which has to be here for that."""
        return self.tied and self.embeds and self.predicts

    def parameters(self) -> int:
        """Return how many numbers are learned."""
        return sum(tensor_bytes(shape, "int8") for shape in self.parameter_shapes())


GPT2 = {
    "GPT-2 small": Sizes(),
    "GPT-2 medium": Sizes(width=1024, layers=24, heads=16),
    "GPT-2 large": Sizes(width=1280, layers=36, heads=20),
    "GPT-2 XL": Sizes(width=1600, layers=48, heads=25),
}
"""Sizes of GPT-2's models, as in the configurations gpt2, gpt2-medium, gpt2-large, gpt2-xl."""


@dataclass(frozen=True)
class Precision:
    """Which dtype is used where."""

    name: str
    weights: str
    """Of parameters and of their gradients."""
    compute: str
    """Of matrix products, and so of most activations."""
    stream: str
    """Of the residual stream and the norms."""
    master: bool = False
    """Whether the optimizer works on float32 copies of the weights, with float32 states."""

    @property
    def autocast(self) -> bool:
        """Whether weights are cast for each forward pass."""
        return self.weights != self.compute

    @property
    def state_dtype(self) -> str:
        """Of the optimizer's states: that of what it updates."""
        return "float32" if self.master else self.weights


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float32", "float32", "float32", "float32"),
        Precision("autocast bfloat16", "float32", "bfloat16", "float32"),
        Precision("autocast float16", "float32", "float16", "float32"),
        Precision("pure bfloat16", "bfloat16", "bfloat16", "bfloat16"),
        Precision("bfloat16, float32 master", "bfloat16", "bfloat16", "bfloat16", master=True),
        Precision("float16, float32 master", "float16", "float16", "float16", master=True),
    )
}
"""Ways to mix precisions, by name. The last is what arXiv 1910.02054 (ZeRO) §3.1 counts."""


@dataclass(frozen=True)
class Run:
    """How a transformer is trained."""

    batch: int
    sequence: int
    precision: str = "float32"
    """A name in `PRECISIONS`."""
    optimizer: str = "adamw"
    """A name in `vramlab.programs.optimizer_states.STATES`."""
    implementation: Implementation = "foreach"
    """How step() works."""
    attention: Attention = "eager"
    dropout: bool = True
    checkpointing: Checkpointing = "none"
    sequence_ranks: int = 1
    """How many ranks share the tokens between the matrices (sequence parallelism)."""
    checkpoint_every: int = 1
    """Full checkpointing recomputes one of so many layers."""
    loss_chunks: int = 1
    """How many parts of the tokens the logits are computed for, one part after the other."""

    def __post_init__(self) -> None:
        if self.attention == "flash" and self.dtypes.compute == "float32":
            raise ValueError(
                "flash attention has no float32 kernel: choose another attention, or a 16-bit "
                "precision"
            )

    @property
    def dtypes(self) -> Precision:
        """Its precision; KeyError with the known names if there is none of that name."""
        try:
            return PRECISIONS[self.precision]
        except KeyError:
            known = ", ".join(PRECISIONS)
            raise KeyError(f"no precision {self.precision!r}; there are: {known}") from None

    @property
    def rows(self) -> int:
        """Tokens in a batch."""
        return self.batch * self.sequence

    @property
    def scores_dtype(self) -> str:
        """Of the attention scores after softmax: autocast and the math backend want float32."""
        if self.attention == "math" or self.dtypes.autocast:
            return "float32"
        return self.dtypes.compute

    def rows_bytes(self, width: int, dtype: str) -> int:
        """Return a tensor (B, S, width)."""
        return block_bytes(tensor_bytes((self.rows, width), dtype))

    def between_bytes(self, width: int, dtype: str) -> int:
        """Return a tensor (B, S, width) between the matrices, of which a rank may have a part."""
        return block_bytes(tensor_bytes((self.rows // self.sequence_ranks, width), dtype))

    def scores_bytes(self, heads: int, dtype: str) -> int:
        """Return a tensor (B, heads, S, S)."""
        return block_bytes(tensor_bytes((self.batch, heads, self.sequence, self.sequence), dtype))


def check_kernels(run: Run, compute_capability: tuple[int, int]) -> None:
    """Raise ValueError if a GPU of this compute capability has no kernel of the run's attention.

    Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, PyTorch 2.13.
    """
    compute = run.dtypes.compute
    lacking = (run.attention == "flash" and compute_capability < (8, 0)) or (
        run.attention == "efficient" and compute == "bfloat16" and compute_capability < (8, 0)
    )
    if lacking:
        major, minor = compute_capability
        raise ValueError(
            f"a GPU of compute capability {major}.{minor} has no kernel of {run.attention} "
            f"attention for {compute}: choose another attention, or another precision"
        )


Terms = Mapping[str, int]
"""Bytes by what they are for."""


# ---- What does not depend on the batch ----


def parameters_bytes(sizes: Sizes, dtype: str = "float32") -> int:
    """Return the parameters; their gradients are as large."""
    return sum(block_bytes(tensor_bytes(shape, dtype)) for shape in sizes.parameter_shapes())


def states_bytes(sizes: Sizes, run: Run) -> int:
    """Return what the optimizer keeps: states, and copies of the weights if any."""
    dtype = run.dtypes.state_dtype
    parameters = [tensor_bytes(shape, dtype) for shape in sizes.parameter_shapes()]
    copies_bytes = sum(map(block_bytes, parameters)) if run.dtypes.master else 0
    return state_bytes(run.optimizer, parameters, run.implementation) + copies_bytes


def step_extra_bytes(sizes: Sizes, run: Run) -> int:
    """Return the temporaries of step(): a denominator in Adam, float32 gradients for copies."""
    dtype = run.dtypes.state_dtype
    parameters = [tensor_bytes(shape, dtype) for shape in sizes.parameter_shapes()]
    gradients_bytes = sum(map(block_bytes, parameters)) if run.dtypes.master else 0
    if not run.optimizer.startswith("adam"):
        return gradients_bytes
    return gradients_bytes + adam_step_extra_bytes(parameters, run.implementation)


def bytes_per_parameter(precision: str, optimizer: str = "adamw") -> dict[str, int]:
    """Return bytes of each parameter in training, by what they are for.

    Weights with their float32 copies, gradients, optimizer states, and the casts that autocast
    keeps of the weights of Linear layers from the forward pass to the backward pass.

    Args:
        precision: a name in `PRECISIONS`.
        optimizer: a name in `vramlab.programs.optimizer_states.STATES`.
    """
    chosen = PRECISIONS[precision]
    weight = ITEM_BYTES[chosen.weights]
    state = ITEM_BYTES[chosen.state_dtype]
    return {
        "weights": weight + (state if chosen.master else 0),
        "gradients": weight,
        "states": state * STATES[optimizer],
        "casts": ITEM_BYTES[chosen.compute] if chosen.autocast else 0,
    }


# ---- What the forward pass keeps ----


def _cast_bytes(run: Run, *shapes: tuple[int, ...]) -> int:
    """Casts of weights that a Linear layer keeps for its backward pass, under autocast."""
    if not run.dtypes.autocast:
        return 0
    return sum(block_bytes(tensor_bytes(shape, run.dtypes.compute)) for shape in shapes)


def norm_kept(sizes: Sizes, run: Run) -> Terms:
    """Return what a norm keeps: its input, and float32 statistics of each row."""
    statistics = 2 if sizes.norm == "layer" else 1
    return {
        "input": run.between_bytes(sizes.width, run.dtypes.stream),
        "statistics": statistics * run.between_bytes(1, "float32"),
    }


def core_kept(sizes: Sizes, run: Run) -> Terms:
    """Return what is kept between attention's Linear layers, the second's input included."""
    compute, heads, w = run.dtypes.compute, sizes.heads, sizes.attended_width
    attended_bytes = run.rows_bytes(w, compute)
    if run.attention in ("flash", "efficient"):
        repeats = run.attention == "efficient" and sizes.kv != heads
        terms = {
            "query, key, value": run.rows_bytes(sizes.qkv_width, compute),
            "output, which is the projection's input": attended_bytes,
        }
        if sizes.rotary and repeats:  # the query that was turned is all that is left of them
            terms["query, key, value"] = attended_bytes
        elif sizes.rotary:  # new tensors; the value is a part of the old one, and keeps all of it
            turned = (heads + sizes.kv) * sizes.head_size
            terms["query and key, turned"] = run.rows_bytes(turned, compute)
        if run.attention == "flash":
            terms["logsumexp"] = run.rows_bytes(heads, "float32")
            terms["seeds"] = SEED_BYTES
        else:
            length = -(-run.sequence // 32) * 32
            shape = (run.batch, heads, length)
            terms["logsumexp"] = block_bytes(tensor_bytes(shape))
            if repeats:
                terms["keys and values repeated"] = 2 * attended_bytes
        return terms
    scores = run.scores_dtype
    operand = "float32" if run.attention == "math" else compute
    terms = {
        "query, key, value": 3 * run.rows_bytes(w, operand),
        "softmax": run.scores_bytes(heads, scores),
    }
    if run.dropout:
        terms["dropout mask of softmax"] = run.scores_bytes(heads, "bool")
    if run.dropout or operand != scores:
        terms["softmax as the product's operand"] = run.scores_bytes(heads, operand)
    terms["projection's input"] = attended_bytes
    return terms


def core_inputs(sizes: Sizes, run: Run) -> Terms:
    """Return the same where it is recomputed: only its inputs and its output are kept."""
    return {
        "query, key, value": run.rows_bytes(sizes.qkv_width, run.dtypes.compute),
        "projection's input": run.rows_bytes(sizes.attended_width, run.dtypes.compute),
    }


def attention_kept(sizes: Sizes, run: Run) -> Terms:
    """Return what the first half of a layer keeps, its norm included."""
    qkv, project, _, _ = sizes.matrices
    core = core_inputs if run.checkpointing == "selective" else core_kept
    return {
        **{f"attention norm: {name}": size for name, size in norm_kept(sizes, run).items()},
        "attention: input": run.rows_bytes(sizes.width, run.dtypes.compute),
        **{f"attention: {name}": size for name, size in core(sizes, run).items()},
        "attention: casts of weights": _cast_bytes(run, qkv, project),
        "attention: dropout mask": run.between_bytes(sizes.width, "bool") if run.dropout else 0,
    }


def feed_forward_kept(sizes: Sizes, run: Run) -> Terms:
    """Return what the second half of a layer keeps, its norm included."""
    _, _, up, down = sizes.matrices
    compute = run.dtypes.compute
    inner_bytes = run.rows_bytes(sizes.inner, compute)
    if sizes.activation == "gelu":
        inside = {"input of GELU": inner_bytes}
    else:
        inside = {
            "gate and values": run.rows_bytes(sizes.up_width, compute),
            "SiLU of the gate": inner_bytes,
        }
    return {
        **{f"feed-forward norm: {name}": size for name, size in norm_kept(sizes, run).items()},
        "feed-forward: input": run.rows_bytes(sizes.width, compute),
        **{f"feed-forward: {name}": size for name, size in inside.items()},
        "feed-forward: input of the second layer": inner_bytes,
        "feed-forward: casts of weights": _cast_bytes(run, up, down),
        "feed-forward: dropout mask": run.between_bytes(sizes.width, "bool") if run.dropout else 0,
    }


def layer_terms(sizes: Sizes, run: Run) -> Terms:
    """Return what one layer keeps while its backward pass is under way, or has not begun.

    With full checkpointing that is so only for the layer that has just been recomputed; see
    `layer_kept_bytes`.
    """
    terms = {**attention_kept(sizes, run), **feed_forward_kept(sizes, run)}
    return {name: size for name, size in terms.items() if size}


def layer_kept_bytes(sizes: Sizes, run: Run) -> int:
    """Return what a layer saves for backward; with full checkpointing only its input."""
    if run.checkpointing == "full":
        return run.between_bytes(sizes.width, run.dtypes.stream)
    return sum(layer_terms(sizes, run).values())


def embedding_kept(sizes: Sizes, run: Run) -> Terms:
    """Return what is saved before the first layer: positions, dropout mask, causal mask."""
    terms = {}
    if sizes.embeds and sizes.learned_positions:
        terms["positions"] = block_bytes(tensor_bytes((run.sequence,), "int64"))
    if sizes.embeds and run.dropout:
        terms["dropout mask of the embedding"] = run.between_bytes(sizes.width, "bool")
    if sizes.rotary:
        shape = (run.sequence, sizes.head_size)
        terms["rotary cosines and sines"] = 2 * block_bytes(tensor_bytes(shape, run.dtypes.compute))
    if sizes.causal and run.attention == "eager":
        terms["causal mask"] = block_bytes(tensor_bytes((run.sequence, run.sequence), "bool"))
    return terms


def head_kept(sizes: Sizes, run: Run) -> Terms:
    """Return what is kept after the last layer, until the loss.

    cross_entropy works in the dtype of the logits. Under autocast its second half, nll_loss, wants
    float32, so that the logarithms are kept twice: six bytes for each logit instead of two. With
    several chunks, logits are recomputed in the backward pass.
    """
    if not sizes.predicts:
        return {}
    dtypes = run.dtypes
    terms = {
        **{f"last norm: {name}": size for name, size in norm_kept(sizes, run).items()},
        "head: input": run.rows_bytes(sizes.width, dtypes.compute),
        "head: cast of its weight": _cast_bytes(run, (sizes.vocabulary, sizes.width)),
        "logarithms of softmax": run.rows_bytes(sizes.vocabulary, dtypes.compute),
        "loss and its divisor": 2 * block_bytes(4),
    }
    if run.loss_chunks > 1:
        for name in ("head: cast of its weight", "logarithms of softmax"):
            terms[name] = 0
    elif dtypes.autocast:
        terms["logarithms in float32"] = run.rows_bytes(sizes.vocabulary, "float32")
    return {name: size for name, size in terms.items() if size}


def kept_bytes(sizes: Sizes, run: Run) -> int:
    """Return all that the forward pass keeps, the loss included; neither parameters nor inputs."""
    every = replace(run, checkpointing="none") if run.checkpointing == "full" else run
    recomputed = -(-sizes.layers // run.checkpoint_every)
    return (
        sum(embedding_kept(sizes, run).values())
        + recomputed * layer_kept_bytes(sizes, run)
        + (sizes.layers - recomputed) * layer_kept_bytes(sizes, every)
        + sum(head_kept(sizes, run).values())
    )


def input_bytes(sizes: Sizes, run: Run) -> int:
    """Size tokens and targets (B, S), int64, where they are needed."""
    return (sizes.embeds + sizes.predicts) * run.rows_bytes(1, "int64")


# ---- What papers say ----


def paper_layer_terms(batch: int, sequence: int, width: int, heads: int) -> Terms:
    """Return what arXiv 2205.05198 §4.1 counts for one layer, term by term, by the names used here.

    16 bit everywhere, masks of one byte. s is the sequence, b the batch, h the width and a the
    number of heads: 11 sbh + 5 as^2 b for attention, 19 sbh for feed-forward, 4 sbh for two norms.
    """
    tokens = batch * sequence * width
    scores = batch * heads * sequence * sequence
    return {
        "attention norm: input": 2 * tokens,
        "attention: input": 2 * tokens,
        "attention: query, key, value": 6 * tokens,
        "attention: softmax": 2 * scores,
        "attention: dropout mask of softmax": scores,
        "attention: softmax as the product's operand": 2 * scores,
        "attention: projection's input": 2 * tokens,
        "attention: dropout mask": tokens,
        "feed-forward norm: input": 2 * tokens,
        "feed-forward: input": 2 * tokens,
        "feed-forward: input of GELU": 8 * tokens,
        "feed-forward: input of the second layer": 8 * tokens,
        "feed-forward: dropout mask": tokens,
    }


def paper_layer_bytes(
    batch: int, sequence: int, width: int, heads: int, recomputation: Checkpointing = "none"
) -> int:
    """Size one layer's activations in 16 bit with dropout, by arXiv 2205.05198 equations 1 and 6.

    Without recomputation sbh (34 + 5 as/h), with selective recomputation 34 sbh, and with full
    recomputation 2 sbh (§5).
    """
    if recomputation == "full":
        return 2 * batch * sequence * width
    terms = paper_layer_terms(batch, sequence, width, heads)
    recomputed = "softmax" if recomputation == "selective" else None
    return sum(size for name, size in terms.items() if not recomputed or recomputed not in name)


def zero_paper_activations_bytes(batch: int, sequence: int, width: int, layers: int) -> int:
    """Size a GPT-2-like model's activations by arXiv 1910.02054 (ZeRO), the footnote in §3.2.

    12 x hidden x batch x sequence x layers numbers, of two bytes each.
    """
    return 2 * 12 * width * batch * sequence * layers
