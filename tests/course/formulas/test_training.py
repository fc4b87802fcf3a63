"""A training step of Linear layers, and what optimizers take, by hand."""

from __future__ import annotations

from vramlab.programs import optimizer_states
from vramlab.units import MIB
from vramlab_course.formulas import activations, per_parameter
from vramlab_course.formulas.training import LinearChain

DOCUMENT = LinearChain(batch=10240, widths=(1024, 1024, 1024, 2048))
KIB16 = 16_793_600  # 16.015625 MiB: 4 x (2 x 1024 x 1024 + 1024 x 2048 + 1024 + 1024 + 2048)


def no_buffers(rows: int, columns: int) -> int:
    return 0


def test_what_is_held() -> None:
    assert DOCUMENT.parameters_bytes == KIB16
    # Before: parameters, input 40 MiB, outputs 40 + 40 + 80 MiB, loss.
    assert DOCUMENT.held_before_backward_bytes == KIB16 + 200 * MIB + 512
    # After: parameters and gradients, input 40 MiB, output 80 MiB, loss.
    assert DOCUMENT.held_after_backward_bytes == 2 * KIB16 + 120 * MIB + 512


def test_moments_of_the_backward_pass() -> None:
    moments = DOCUMENT.backward_moments(no_buffers)
    assert list(moments) == ["clone 3", "bias 3", "clone 2", "bias 2", "clone 1", "bias 1"]
    # Held 216.0156 MiB, the gradient 1 of the loss (512 B), the gradient of the layer's input
    # 40 MiB and of its weight 8 MiB, and the clone of the expanded gradient 80 MiB.
    assert moments["clone 3"] == KIB16 + 200 * MIB + 1024 + (40 + 8 + 80) * MIB
    # The clone is gone when the bias, 2048 x 4 B, is summed.
    assert moments["bias 3"] == KIB16 + 200 * MIB + 1024 + (40 + 8) * MIB + 8192
    # Layer 2: y2 (40 MiB) is no longer saved; gradients of layer 3 (8 MiB + 8192 B), of y2, of y1
    # (40 MiB each), of weight 2 (4 MiB) and of bias 2 (4096 B).
    held_bytes = KIB16 + 160 * MIB + 1024 + 8 * MIB + 8192
    assert moments["bias 2"] == held_bytes + (40 + 40 + 4) * MIB + 4096
    # Layer 1: its input needs no gradient.
    held_bytes = KIB16 + 120 * MIB + 1024 + 12 * MIB + 8192 + 4096
    assert moments["clone 1"] == held_bytes + (40 + 4) * MIB


def test_an_own_add_has_the_gradient_of_the_bias_first() -> None:
    fused = DOCUMENT.backward_moments(no_buffers)
    own = LinearChain(10240, DOCUMENT.widths, fused_bias=False).backward_moments(no_buffers)
    assert own["clone 3"] - fused["clone 3"] == 8192  # 2048 x 4 B


def test_buffers_of_sums_count_while_a_bias_is_summed() -> None:
    without = DOCUMENT.backward_moments(no_buffers)
    with_buffers = DOCUMENT.backward_moments(lambda rows, columns: rows + columns)
    assert with_buffers["bias 2"] - without["bias 2"] == 10240 + 1024
    assert with_buffers["clone 2"] == without["clone 2"]


def test_activations() -> None:
    assert activations.linear_chain_bytes(10240, (1024, 1024, 1024, 2048)) == 160 * MIB
    assert activations.repeated_linear_bytes(10240, 1024, 2) == 40 * MIB
    assert activations.repeated_linear_bytes(10240, 1024, 10) == 200 * MIB


def test_optimizer_states() -> None:
    sizes = [4 * MIB, 4096, 100]
    assert optimizer_states.state_bytes("sgd", sizes) == 0
    assert optimizer_states.state_bytes("sgd with momentum", sizes) == 4 * MIB + 4096 + 512
    assert optimizer_states.state_bytes("adamw", sizes) == 2 * (4 * MIB + 4096 + 512)
    # Fused, the step counts are on the GPU: 512 B each.
    assert (
        optimizer_states.state_bytes("adam", sizes, "fused") == 2 * (4 * MIB + 4096 + 512) + 3 * 512
    )


def test_extra_of_adams_step() -> None:
    assert optimizer_states.adam_step_extra_bytes([4 * MIB], "loop") == 8 * MIB
    # The quotient of the layer before, 4 MiB, and two of 16 MiB.
    assert optimizer_states.adam_step_extra_bytes([4 * MIB, 16 * MIB, MIB], "loop") == 36 * MIB
    assert optimizer_states.adam_step_extra_bytes([4 * MIB, 16 * MIB, MIB], "foreach") == 21 * MIB
    assert optimizer_states.adam_step_extra_bytes([4 * MIB, 16 * MIB], "fused") == 0


def test_bytes_per_parameter() -> None:
    assert per_parameter.zero_states_bytes(1_500_000_000) == 24_000_000_000  # the paper's GPT-2
