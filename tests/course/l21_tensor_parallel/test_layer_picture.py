"""What GPU 0 has of a layer's activations: as large in the picture as in bytes."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle

from vramlab_course.lessons.l21_tensor_parallel.layer_picture import draw_divided_layer


def test_a_quarter_is_a_quarter_of_the_area() -> None:
    picture = draw_divided_layer(heads=16, ranks=4)
    areas = [
        patch.get_width() * patch.get_height()
        for patch in picture.axes[0].patches
        if isinstance(patch, Rectangle)
    ]
    shares = [area / areas[0] for area in areas]
    # Tensor parallel: whole outside, a quarter inside; with the sequence cut, a quarter of all.
    assert shares == pytest.approx([1, 1 / 4, 1, 1 / 4, 1, *(5 * [1 / 4])])


def test_words_stay_on_the_paper() -> None:
    picture = draw_divided_layer(heads=8, ranks=8)
    renderer = FigureCanvasAgg(picture).get_renderer()
    for text in picture.axes[0].texts:
        box = text.get_window_extent(renderer)
        assert picture.bbox.x0 <= box.x0 <= box.x1 <= picture.bbox.x1, text.get_text()
        assert picture.bbox.y0 <= box.y0 <= box.y1 <= picture.bbox.y1, text.get_text()
    assert "attention:\nhead 0" in [text.get_text() for text in picture.axes[0].texts]
