"""Warnings name the line of the program that they are about, as they do on a real GPU.

PyTorch's C++ code warns at the innermost line of Python, its Python code at one so many frames
further out (`stacklevel`). On a virtual GPU frames of vramlab lie among them. Python hands each
warning that it shows, or that a program records, to `warnings._showwarnmsg`: there, the line is
corrected. Filters have been asked before, with the module and line that Python found.
"""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

from vramlab.gpu.core.session import Session
from vramlab.gpu.core.stack_frames import user_frame
from vramlab.source_files import CodeOwner, owner_of

_PASSED_OVER = (CodeOwner.VRAMLAB, CodeOwner.PYTORCH, CodeOwner.PYTHON)


def install(session: Session) -> None:
    """Replace how warnings are shown."""
    show: Any = getattr(warnings, "_showwarnmsg", None)
    if show is None:  # a private name, of CPython 3.6 and later
        return

    def show_at_line_of_program(message: warnings.WarningMessage) -> None:
        frame = _frame_named_without_us(message, sys._getframe(1))
        if frame is not None:
            message.filename, message.lineno = frame.f_code.co_filename, frame.f_lineno
        show(message)

    session.patches.set(warnings, "_showwarnmsg", show_at_line_of_program)


def warn(text: str) -> None:
    """Issue a UserWarning of vramlab's own at the line of the program."""
    frame = user_frame()
    if frame is None:
        warnings.warn(text, stacklevel=2)
        return
    names = frame.f_globals
    warnings.warn_explicit(
        text,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        names.get("__name__"),
        names.setdefault("__warningregistry__", {}),
    )


def _frame_named_without_us(
    message: warnings.WarningMessage, innermost: FrameType
) -> FrameType | None:
    """Return the frame that a warning would have named without vramlab's; None: it is right.

    Where none of vramlab's frames is further in than the one that is named, nothing has shifted.
    """
    frame: FrameType | None = innermost
    has_shifted = False
    while frame is not None:
        owner = owner_of(frame.f_code.co_filename)
        has_shifted = has_shifted or owner is CodeOwner.VRAMLAB
        if (frame.f_code.co_filename, frame.f_lineno) == (message.filename, message.lineno):
            break
        frame = frame.f_back
    if not has_shifted or frame is None or owner not in _PASSED_OVER:
        return None
    while frame is not None and owner_of(frame.f_code.co_filename) in _PASSED_OVER:
        frame = frame.f_back
    return frame
