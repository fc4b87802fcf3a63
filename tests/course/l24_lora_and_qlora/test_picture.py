"""The picture of adapters, of a frozen weight and of one that learns."""

from __future__ import annotations

import torch
from torch import nn

from vramlab_course.lessons.l24_lora_and_qlora.picture import draw_adapters


def adam(*parameters: nn.Parameter) -> torch.optim.Optimizer:
    """An optimizer whose parameters have gradients, and their states."""
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(parameters)
    optimizer.step()
    return optimizer


def test_it_says_what_is_there_besides_the_weight() -> None:
    weight, down, up = (nn.Parameter(torch.zeros(s)) for s in ((64, 32), (2, 32), (64, 2)))
    picture = draw_adapters(
        weight, {"W learns": adam(weight), "A and B learn": adam(down, up)}, title="Little"
    )
    # 64 x 32 x 4 B = 8 KiB, three times; (2 x 32 + 64 x 2) x 4 B = 768 B, three times.
    assert picture.alt == (
        "Little. A weight of 64 x 32, 8 KiB. "
        "W learns: gradients and moments of 64 x 32, 24 KiB beside the weight. "
        "A and B learn: gradients and moments of 2 x 32 and 64 x 2, 2.25 KiB beside the weight."
    )
    words = [text.get_text() for text in picture.axes[0].texts]
    assert words.count("frozen") == 1
