"""Transformers in closed form, against sheets of paper: the papers' own figures."""

from __future__ import annotations

import pytest

from vramlab.programs import transformer_memory
from vramlab.programs.transformer_memory import GPT2, Run, Sizes

TINY = Sizes(vocabulary=1024, positions=256, width=512, layers=2, heads=8)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("GPT-2 small", 124_439_808),
        ("GPT-2 medium", 354_823_168),
        ("GPT-2 large", 774_030_080),
        ("GPT-2 XL", 1_557_611_200),
    ],
)
def test_parameters_of_gpt2(name: str, parameters: int) -> None:
    # As transformers counts them in the models of these names.
    assert GPT2[name].parameters() == parameters


def test_parameters_by_hand() -> None:
    # Width 512: 1024 x 512 + 256 x 512 in embeddings; a layer: 3 x 512 x 512 + 1536, 512 x 512 +
    # 512, 2048 x 512 + 2048, 512 x 2048 + 512 and two norms of 2 x 512; a last norm of 2 x 512.
    layer = 787_968 + 262_656 + 1_050_624 + 1_049_088 + 2048
    assert TINY.parameters() == 655_360 + 2 * layer + 1024
    assert (
        transformer_memory.parameters_bytes(TINY) == 4 * TINY.parameters()
    )  # all multiples of 512 B


def test_a_llama_shaped_model() -> None:
    sizes = Sizes(
        vocabulary=1000,
        width=512,
        layers=1,
        heads=8,
        kv_heads=2,
        feed_forward=1024,
        activation="swiglu",
        norm="rms",
        bias=False,
        tied=False,
        learned_positions=False,
    )
    # qkv: 512 + 2 x 2 x 64 = 768 wide; gate and values: 2048 wide.
    layer = 768 * 512 + 512 * 512 + 2048 * 512 + 512 * 1024 + 2 * 512
    assert sizes.parameters() == 2 * 1000 * 512 + layer + 512


@pytest.mark.parametrize("recomputation", ["none", "selective", "full"])
def test_pure_16_bit_is_the_papers_formula_and_the_norms_statistics(recomputation: str) -> None:
    # arXiv 2205.05198: sbh (34 + 5 as/h), 34 sbh, 2 sbh. The paper leaves out what is small
    # "compared to sbh": a mean and a scale of each row, 8 B for each of two norms.
    batch, sequence, width, heads = 4, 256, 512, 8
    run = Run(batch, sequence, "pure bfloat16", checkpointing=recomputation)  # type: ignore[arg-type]
    statistics = 0 if recomputation == "full" else 2 * 8 * batch * sequence
    paper = transformer_memory.paper_layer_bytes(batch, sequence, width, heads, recomputation)  # type: ignore[arg-type]
    assert transformer_memory.layer_kept_bytes(TINY, run) == paper + statistics
    tokens = batch * sequence * width
    by_hand = {
        "none": 34 * tokens + 5 * heads * sequence * sequence * batch,
        "selective": 34 * tokens,
        "full": 2 * tokens,
    }
    assert paper == by_hand[recomputation]


def test_what_autocast_adds_to_the_paper() -> None:
    pure, autocast = Run(4, 256, "pure bfloat16"), Run(4, 256, "autocast bfloat16")
    more = transformer_memory.layer_kept_bytes(
        TINY, autocast
    ) - transformer_memory.layer_kept_bytes(TINY, pure)
    tokens, scores = 4 * 256 * 512, 4 * 8 * 256 * 256
    # Norms keep their input in float32: 2 B more, twice. Softmax is in float32: 2 B more. And the
    # casts of the weights: 12 x 512 x 512 numbers.
    assert more == 2 * 2 * tokens + 2 * scores + 2 * 12 * 512 * 512


def test_float32_is_not_twice_the_paper() -> None:
    run = Run(4, 256)
    tokens, scores = 4 * 256 * 512, 4 * 8 * 256 * 256
    # Masks stay at one byte: 2 x 34 - 2 for the two of width h, and 2 x 5 - 1 for softmax's.
    kept = transformer_memory.layer_kept_bytes(TINY, run)
    assert kept == 66 * tokens + 9 * scores + 16 * 4 * 256


def test_fused_attention_keeps_no_scores() -> None:
    flash = Run(4, 256, "pure bfloat16", attention="flash", dropout=False)
    tokens = 4 * 256 * 512
    # 34 less two masks of 1 B; a float32 for each query of each head; two seeds of 512 B; norms.
    expected = 32 * tokens + 4 * 4 * 8 * 256 + 1024 + 16 * 4 * 256
    assert transformer_memory.layer_kept_bytes(TINY, flash) == expected


def test_logits_under_autocast_are_kept_twice() -> None:
    pure = transformer_memory.head_kept(TINY, Run(4, 256, "pure bfloat16"))
    autocast = transformer_memory.head_kept(TINY, Run(4, 256, "autocast bfloat16"))
    logits = 4 * 256 * 1024
    assert pure["logarithms of softmax"] == 2 * logits
    assert autocast["logarithms of softmax"] == 2 * logits
    assert autocast["logarithms in float32"] == 4 * logits


def test_bytes_of_states() -> None:
    count = TINY.parameters()
    assert transformer_memory.states_bytes(TINY, Run(1, 8, optimizer="sgd")) == 0
    assert (
        transformer_memory.states_bytes(TINY, Run(1, 8, optimizer="sgd with momentum")) == 4 * count
    )
    assert transformer_memory.states_bytes(TINY, Run(1, 8)) == 8 * count
    assert transformer_memory.states_bytes(TINY, Run(1, 8, "pure bfloat16")) == 4 * count
    assert transformer_memory.states_bytes(TINY, Run(1, 8, "float16, float32 master")) == 12 * count


def test_the_zero_papers_sixty_gigabytes() -> None:
    # 2 x 12 x 1600 x 32 x 1024 x 48
    assert transformer_memory.zero_paper_activations_bytes(32, 1024, 1600, 48) == 60_397_977_600
