"""The table as text and as HTML."""

from __future__ import annotations

from vramlab.table import Table

TABLE = Table(
    caption="Sizes <of> things",
    header=("thing", "size"),
    rows=(("one", "1.0 MiB\n1,048,576 B"), ("three\nlinear", "12 B")),
    notes=("A & B.",),
)


def test_text_aligns_names_left_and_numbers_right() -> None:
    assert str(TABLE).split("\n") == [
        "Sizes <of> things",
        "thing          size",
        "------  -----------",
        "one         1.0 MiB",
        "        1,048,576 B",
        "three          12 B",
        "linear",
        "A & B.",
    ]


def test_html_has_caption_scopes_and_escapes_what_it_is_given() -> None:
    html = TABLE._repr_html_()
    assert ">Sizes &lt;of&gt; things</caption>" in html
    assert html.count('<th scope="col"') == 2
    assert html.count('<th scope="row"') == 2
    assert "1.0 MiB<br>1,048,576 B</td>" in html
    assert ">A &amp; B.</p>" in html
    assert "color" not in html  # colour carries no meaning


def test_an_empty_heading_is_an_empty_cell_for_screen_readers() -> None:
    html = Table("t", ("", "a"), (("x", "1"),))._repr_html_()
    head = html[html.index("<thead>") : html.index("</thead>")]
    assert head.count("<th ") == 1
    assert head.startswith("<thead><tr><td style=")
