"""The transformers' explorer: by formula at once, and measured when asked."""

from __future__ import annotations

from vramlab.programs import transformer_memory
from vramlab.programs.transformer_memory import Run
from vramlab_course.lessons.l12_estimating_large_models.explorer import (
    sizes_of,
    transformer_explorer,
)
from vramlab_course.widgets import Explorer


def small(**settings: object) -> Explorer:
    defaults = {"batch": 4, "sequence": 128, "layers": 2, "width": 256, "vocabulary": 1024}
    return transformer_explorer(**{**defaults, **settings})  # type: ignore[arg-type]


def test_it_answers_by_formula_without_a_gpu() -> None:
    text = small().output.value
    assert "measured" not in text
    # 1024 x 256 + 128 x 256 + 2 x 789,760 + 512
    assert "1.9 million parameters" in text
    assert "A100-40GB has" in text
    assert "it fits, at" in text


def test_measured_stands_beside_predicted_and_is_equal() -> None:
    explorer = small(measure=True)
    assert explorer.output.value.count("+0 B") >= 6
    assert "unsplit remainders of blocks" in explorer.output.value
    explorer.controls["measure"].value = False
    assert "unsplit remainders of blocks" not in explorer.output.value


def test_what_the_forward_pass_keeps_is_listed_term_by_term() -> None:
    explorer = small()
    assert "attention: softmax" in explorer.output.value
    explorer.controls["checkpointing"].value = "full"
    assert "attention: softmax" not in explorer.output.value
    assert "inputs of the layers" in explorer.output.value
    explorer.controls["checkpointing"].value = "selective"
    assert "attention: softmax" not in explorer.output.value


def test_kernels_that_a_gpu_lacks_are_refused_by_name() -> None:
    explorer = small(gpu="T4")
    explorer.controls["precision"].value = "autocast bfloat16"
    explorer.controls["attention"].value = "flash"
    assert "a GPU of compute capability 7.5 has no kernel of flash attention" in (
        explorer.output.value
    )
    explorer.controls["attention"].value = "efficient"
    assert "no kernel of efficient attention for bfloat16" in explorer.output.value
    explorer.controls["precision"].value = "autocast float16"
    assert "no kernel" not in explorer.output.value


def test_widths_that_heads_do_not_divide_are_refused() -> None:
    explorer = small(width=1600, head_size=128)
    assert "a width of 1600 is no multiple of a head size of 128" in explorer.output.value


def test_too_large_a_run_shows_the_formula_and_what_torch_says() -> None:
    explorer = small(batch=256, sequence=1024, gpu="T4", measure=True)
    assert "it does not fit" in explorer.output.value
    assert "CUDA out of memory" in explorer.output.value
    assert "predicted" in explorer.output.value


def test_styles_differ_in_their_layers() -> None:
    llama = sizes_of("Llama", 2, 768, 64, 1024, 128)
    # 8 x 768 / 3 = 2048, a multiple of 256 already
    assert (llama.inner, llama.heads, llama.bias, llama.tied) == (2048, 12, False, False)
    assert transformer_memory.layer_kept_bytes(llama, Run(1, 8, dropout=False)) > 0
