"""Explain a file or a pasted message, as HTML for the page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from vramlab.explaining import message, timelines, whatif
from vramlab.explaining.explanation import explain_data
from vramlab.explaining.traces import GPUTrace, read_gpus
from vramlab.explaining.unpickling import is_pickle, load_snapshot, read_bytes
from vramlab.units import short_size
from vramlab.viz import timeline_html

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
    text = f"<h3>{escape(path)}</h3>{_text(str(explain_data(data, path)))}"
    gpus = {gpu.device: gpu for gpu in read_gpus(load_snapshot(data, path)) if gpu.events}
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
    gpu = _explained[path][device]
    if settings is None:
        curve, how = timelines.as_recorded(gpu), "as recorded"
    else:
        curve, how = (
            timelines.replayed(gpu, settings),
            f"replayed with {settings or 'the defaults'}",
        )
    end = "runs out of memory" if curve.failed else "fits"
    peak = short_size(max(level for _, level in curve.reserved_bytes))
    title = f"cuda:{device} {how}: {end}, peak reserved {peak}"
    return timeline_html(timelines.view(gpu, curve, title))


def _text(text: str) -> str:
    return f'<pre tabindex="0">{escape(text)}</pre>'


def _choice(path: str, gpu: GPUTrace) -> Iterator[str]:
    """Offer a GPU's timelines: as recorded, and under each setting that is tried."""
    yield f'<form class="explain-timelines" data-path="{escape(path)}" data-device="{gpu.device}">'
    yield f"<fieldset><legend>Timeline of cuda:{gpu.device}</legend>"
    yield '<label><input type="radio" name="settings" checked> as recorded</label> '
    for settings in dict.fromkeys(("", *whatif.SETTINGS)):
        shown = escape(settings)
        yield f'<label><input type="radio" name="settings" value="{shown}" data-replay> '
        yield f"{shown or 'default settings'}</label> "
    yield '</fieldset><div class="shown"></div></form>'
