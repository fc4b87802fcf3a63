"""Explain a file or a pasted message, as HTML for the page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from vramlab.explaining import message, timelines
from vramlab.explaining.explanation import explain_data
from vramlab.explaining.shown import as_html
from vramlab.explaining.traces import GPUTrace
from vramlab.explaining.unpickling import is_pickle, read_bytes

_explained: dict[str, dict[int, GPUTrace]] = {}
"""GPUs of the files on the page, by path and index."""


def forget() -> None:
    """Forget all files: the page shows none of them any more."""
    _explained.clear()


def explain_file(path: str) -> str:
    """Explain a memory snapshot, or a log with an out-of-memory message.

    Args:
        path: of the file, which may be compressed.

    Raises:
        VramlabError: The file is neither, or it is damaged.
    """
    data = read_bytes(path)
    if not is_pickle(data, path):
        return explain_message(data.decode("utf-8-sig", "replace"), path)
    explained = explain_data(data, path)
    text = f"<h3>{escape(path)}</h3>{as_html(explained)}"
    gpus = {gpu.device: gpu for gpu in explained.traces}
    _explained[path] = gpus
    return text + "".join("".join(_choice(path, gpu)) for gpu in gpus.values())


def explain_message(text: str, name: str = "your message") -> str:
    """Explain the out-of-memory messages in a text.

    Raises:
        NoMessage: There is none.
    """
    return _text(message.as_text(message.find_messages(text), name))


def timeline(path: str, device: int, settings: str | None) -> str:
    """Draw a GPU of a file that has been explained.

    Args:
        path: of the file.
        device: index of the GPU.
        settings: allocator settings under which it is replayed; None: as it was recorded.
    """
    return timelines.drawn(_explained[path][device], settings)


def _text(text: str) -> str:
    return f'<pre tabindex="0">{escape(text)}</pre>'


def _choice(path: str, gpu: GPUTrace) -> Iterator[str]:
    """Offer a GPU's timelines: as recorded, and under each setting that is tried."""
    yield f'<form class="explain-timelines" data-path="{escape(path)}" data-device="{gpu.device}">'
    yield f"<fieldset><legend>Timeline of cuda:{gpu.device}</legend>"
    for name, settings in timelines.choices():
        choice = " checked" if settings is None else f' value="{escape(settings)}" data-replay'
        yield f'<label><input type="radio" name="settings"{choice}> {escape(name)}</label> '
    yield '</fieldset><div class="shown"></div></form>'
