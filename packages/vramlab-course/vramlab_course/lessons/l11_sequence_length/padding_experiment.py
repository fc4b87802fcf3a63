"""Lesson 11: what padding costs, and what packing texts behind each other saves.

Letters of shapes: B batch, S sequence, T tokens of all texts, W width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l11_sequence_length.attention_formulas import kept_bytes

LONGEST = 512
WIDTH, HEADS, VOCABULARY = 768, 12, 30522


def text_lengths(texts: int = 32, longest: int = LONGEST) -> list[int]:
    """Draw the lengths of a batch of texts as they are found: many short ones, few long ones."""
    return [max(8, round(longest * ((number + 1) / texts) ** 3 / 8) * 8) for number in range(texts)]


def in_buckets(lengths: Sequence[int], buckets: int) -> list[list[int]]:
    """Sort texts by length, and put as many into each bucket, neighbours together."""
    ordered = sorted(lengths)
    size = -(-len(ordered) // buckets)
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


class PackableLayer(nn.Module):
    """A transformer layer with the norms in front, that takes padded or packed texts.

    Args:
        width: of the hidden states.
        heads: of the attention, memory-efficient or flash, as the GPU has it.
    """

    def __init__(self, width: int = WIDTH, heads: int = HEADS) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.inputs = nn.Linear(width, 3 * width)  # query, key and value
        self.project = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def padded(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Run texts (B, S, W), padded to one length; the padding belongs to no text."""
        places = torch.arange(x.size(1), device=x.device)
        is_text = places < torch.tensor(lengths, device=x.device)[:, None]  # (B, S)
        query, key, value = self._heads(self.inputs(self.attention_norm(x)))
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=is_text[:, None, None]
        )
        return self._rest(x, attended.transpose(1, 2).flatten(2))

    def packed(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Run texts one behind the other, (T, W). Only attention has to know where each begins."""
        texts = self.inputs(self.attention_norm(x)).split(list(lengths))
        attended = []
        for text in texts:
            query, key, value = self._heads(text[None])
            alone = functional.scaled_dot_product_attention(query, key, value)
            attended.append(alone.transpose(1, 2).flatten(2)[0])
        return self._rest(x, torch.cat(attended))

    def _heads(self, rows: Tensor) -> list[Tensor]:
        """(B, S, 3 W) to three of (B, H, S, D)."""
        return [
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in rows.chunk(3, dim=-1)
        ]

    def _rest(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.project(attended)
        output: Tensor = x + self.down(functional.gelu(self.up(self.norm(x))))
        return output


def kept_by_rows_bytes(rows: int, width: int = WIDTH) -> int:
    """Return what `PackableLayer` saves per row (token or padding) in float32, without attention.

    The first norm's output, query, key and value; the sum after attention, which is the second
    norm's input, and its output; GELU's input and output; the layer's output. And each norm's mean
    and scale.
    """
    widths = (1, 3, 1, 1, 4, 4, 1)
    norms_bytes = 4 * block_bytes(tensor_bytes((rows,)))
    return sum(block_bytes(tensor_bytes((rows, n * width))) for n in widths) + norms_bytes


@experiment(
    "padding",
    lesson="11",
    question="What does padding cost, and who has to pay it?",
    source="003",
)
def padding(texts: int = 32, longest: int = LONGEST) -> Outcome:
    """Run one transformer layer and one prediction layer, over texts of mixed lengths, float32.

    Padded to the longest that the model takes, to the longest of the batch, in four buckets (what
    the largest of them keeps: they run one after the other), and packed. Then the prediction layer,
    for all tokens and for one in eight.
    """
    trial = Trial("padding", texts=texts, longest=longest)
    lengths = text_lengths(texts, longest)
    layer = PackableLayer().to("cuda")
    decoder = nn.Linear(WIDTH, VOCABULARY, bias=False).to("cuda")
    _warm_up(layer)

    def run_padded(name: str, bucket: Sequence[int], to: int) -> None:
        torch.cuda.empty_cache()
        x = torch.zeros(len(bucket), to, WIDTH, device="cuda")
        remainder_bytes = unsplit_remainder_bytes()
        with trial.stage(name) as stage:
            output = layer.padded(x, bucket)
        stage.expect(
            expected(
                "growth",
                _padded_bytes(len(bucket), to) + unsplit_remainder_bytes() - remainder_bytes,
            )
        )
        del output

    run_padded(f"padded to {2 * longest}", lengths, 2 * longest)
    run_padded(f"padded to {max(lengths)}", lengths, max(lengths))
    bucket = max(in_buckets(lengths, 4), key=lambda each: len(each) * max(each))
    run_padded("the largest of four buckets", bucket, max(bucket))

    torch.cuda.empty_cache()
    tokens = sum(lengths)
    x = torch.zeros(tokens, WIDTH, device="cuda")
    remainder_bytes = unsplit_remainder_bytes()
    with trial.stage("packed") as packed:
        hidden = layer.packed(x, lengths)
    packed.expect(
        expected("growth", _packed_bytes(lengths) + unsplit_remainder_bytes() - remainder_bytes)
    )

    targets = torch.zeros(tokens, dtype=torch.long, device="cuda")
    chosen = torch.arange(0, tokens, 8, device="cuda")
    chosen_bytes = block_bytes(tensor_bytes((len(chosen), WIDTH)))
    chosen_bytes += block_bytes(tensor_bytes((len(chosen),), "int64"))  # their targets
    for name, kept in (
        ("prediction for all tokens", _prediction_bytes(tokens)),
        ("prediction for one in eight", _prediction_bytes(len(chosen)) + chosen_bytes),
    ):
        torch.cuda.empty_cache()
        remainder_bytes = unsplit_remainder_bytes()
        with trial.stage(name) as prediction:
            if name.endswith("eight"):
                loss = functional.cross_entropy(decoder(hidden[chosen]), targets[chosen])
            else:
                loss = functional.cross_entropy(decoder(hidden), targets)
        prediction.expect(expected("growth", kept + unsplit_remainder_bytes() - remainder_bytes))
        del loss
    return trial.outcome()


def _warm_up(layer: PackableLayer) -> None:
    with torch.no_grad():
        layer.packed(torch.zeros(8, WIDTH, device="cuda"), [8])


def _padded_bytes(batch: int, length: int) -> int:
    """Attention's own is memory-efficient: float32. And the mask, one number for each place."""
    attention = kept_bytes("memory-efficient", batch, HEADS, length, WIDTH // HEADS)
    mask_bytes = block_bytes(tensor_bytes((batch, length)))
    return kept_by_rows_bytes(batch * length) + attention + mask_bytes


def _packed_bytes(lengths: Sequence[int]) -> int:
    """Each text's attention by itself, and all their outputs copied into one tensor."""
    attention = sum(
        kept_bytes("memory-efficient", 1, HEADS, length, WIDTH // HEADS) for length in lengths
    )
    joined_bytes = block_bytes(tensor_bytes((sum(lengths), WIDTH)))
    return kept_by_rows_bytes(sum(lengths)) + attention + joined_bytes


def _prediction_bytes(rows: int) -> int:
    """Return the log-softmax (rows, V), the targets' weight, and the loss."""
    return block_bytes(tensor_bytes((rows, VOCABULARY))) + 2 * block_bytes(4)
