"""Whether a person runs the cells of this notebook, or a program does."""

from __future__ import annotations

from typing import Any


def in_a_kernel() -> Any | None:
    """Return the shell of the Jupyter kernel that this is, or None."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return shell if hasattr(shell, "kernel") else None


def person_runs(shell: Any) -> bool:
    """Return whether the running cell was sent by a person, who can be asked for input.

    Programs that run notebooks, as nbclient, nbconvert and nbgrader do, say that they cannot.
    """
    request = shell.kernel.get_parent("shell")
    return bool(request.get("content", {}).get("allow_stdin"))


def is_here() -> bool:
    """Return whether a person runs this cell of a notebook; call it while the cell runs."""
    shell = in_a_kernel()
    return shell is not None and person_runs(shell)


def display_bundle(box: Any, html: str, text: str, **options: Any) -> dict[str, Any]:
    """Make what a cell displays: a live widget, and its replacement elsewhere.

    A program that runs a notebook gets no widget: its page could not show one without a kernel.

    Args:
        box: the ipywidgets element.
        html: what pages without a kernel show.
        text: what terminals show.
        options: of `_repr_mimebundle_`.
    """
    bundle: dict[str, Any] = {}
    if in_a_kernel() is None or is_here():
        bundle.update(box._repr_mimebundle_(**options))
    return {**bundle, "text/html": html, "text/plain": text}
