"""Memory against time: points where they belong, and the same in words."""

from __future__ import annotations

from vramlab.units import MIB
from vramlab_course.lessons.l18_memory_against_speed.trades_picture import (
    Trade,
    describe_trades,
    draw_trades,
)


def test_each_way_is_a_point() -> None:
    trades = {"plain": Trade(4096 * MIB, 0.002), "checkpointed": Trade(2048 * MIB, 0.0025)}
    picture = draw_trades(trades, title="Two ways")
    plain, checkpointed = picture.axes[0].get_lines()
    assert (list(plain.get_xdata()), list(plain.get_ydata())) == ([4.0], [2.0])  # GiB, ms
    assert (list(checkpointed.get_xdata()), list(checkpointed.get_ydata())) == ([2.0], [2.5])
    assert picture.alt == describe_trades(trades, title="Two ways")
    assert "plain: 4 GiB, 2 ms; checkpointed: 2 GiB, 2.5 ms" in picture.alt


def test_names_stand_at_points_and_off_each_other() -> None:
    trades = {"one": Trade(4096 * MIB, 0.002), "another": Trade(4090 * MIB, 0.00201)}
    axes = draw_trades(trades, title="").axes[0]
    one, another = axes.texts
    assert [one.get_text(), another.get_text()] == ["one", "another"]
    assert one.get_window_extent().overlaps(another.get_window_extent()) == 0
    assert axes.figure.legends == []
