"""Writes the pages of the API reference: one for each part of the three packages.

Their text is the docstrings'; here is only what is listed where.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from pathlib import Path

from docs.builder.docstrings import first_sentence

PACKAGES = (
    "vramlab",
    "packages/vramlab-course/vramlab_course",
    "packages/vramlab-classroom/vramlab_classroom",
)

LEFT_OUT = re.compile(
    r"vramlab/__main__.py|packages/.*/(lessons/l\d+_\w+/tasks|workshops/workshop_\w+)\.py"
)
"""The entry point has nothing to call, and the exercises' tasks say how they are judged."""

_INDEX = """\
API reference
=============

What programs import from ``vramlab`` itself is on :doc:`the first page <vramlab>`; everything else
is below, module by module.

.. list-table::
   :header-rows: 1
   :widths: 35 65

   * - Module
     - What it is
{rows}

.. toctree::
   :hidden:

{pages}
"""


def pages(root: Path, modules: Collection[str] = ()) -> dict[str, str]:
    """The reference as reST, by path within the site.

    Args:
        root: the checkout that holds the packages.
        modules: names of modules to describe, such as `vramlab.units`; without any, all.
    """
    below: list[Path] = []
    for package in (root / name for name in PACKAGES):
        below += [package] if package.name != "vramlab" else []
        below += sorted(path.parent for path in package.glob("*/__init__.py"))
        below += sorted(path for path in package.glob("*.py") if not path.name.startswith("__"))
    documented = {"vramlab": _front_page(root / "vramlab")}
    for path in below:
        if not modules or _name(path, root) in modules:
            documented[_name(path, root)] = _page(path, root)
    index = _INDEX.format(
        rows="\n".join(
            f"   * - :doc:`{name}`\n     - {first_sentence(_docstring(root, name))}"
            for name in documented
        ),
        pages="\n".join(f"   {name}" for name in documented),
    )
    texts = {f"reference/{name}.rst": text for name, text in documented.items()}
    return {"reference/index.rst": index, **texts}


def _front_page(package: Path) -> str:
    """vramlab's own docstring, and the names it has from its modules."""
    (home,) = (
        ast.literal_eval(node.value)
        for node in ast.parse((package / "__init__.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOME"
    )
    names = "\n".join(
        f"- :py:obj:`vramlab.{name} <{_defining_module(package, module, name)}.{name}>`"
        for name, module in sorted(home.items())
    )
    return f"{_heading('vramlab', '=')}.. automodule:: vramlab\n\nNames\n-----\n\n{names}\n"


def _defining_module(package: Path, module: str, name: str) -> str:
    """The module that defines what `module` may have from another one."""
    path = _file(package.parent, module)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and name in {a.asname or a.name for a in node.names}:
            return _defining_module(package, str(node.module), name)
    return module


def _page(path: Path, root: Path) -> str:
    if path.is_file() or path.relative_to(root).as_posix() in PACKAGES:
        return _module(path, root, "=")
    inner = (inner for inner in sorted(path.rglob("*.py")) if inner != path / "__init__.py")
    parts = [_module(path, root, "="), *(_module(inner, root, "-") for inner in inner)]
    return "\n".join(part for part in parts if part)


def _module(path: Path, root: Path, underline: str) -> str:
    if LEFT_OUT.fullmatch(path.relative_to(root).as_posix()):
        return ""
    name = _name(path, root)
    # What a package lists in __all__ is described where it is defined.
    directive = f".. automodule:: {name}\n   :members:\n   :ignore-module-all:\n"
    return f"{_heading(name, underline)}{directive}"


def _heading(text: str, underline: str) -> str:
    return f"{text}\n{underline * len(text)}\n\n"


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts[2:] if parts[0] == "packages" else parts
    return ".".join(part for part in parts if part != "__init__")


def _file(root: Path, module: str) -> Path:
    package, *inner = module.split(".")
    (home,) = (root / path for path in PACKAGES if Path(path).name == package)
    path = home.joinpath(*inner)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _docstring(root: Path, module: str) -> str:
    docstring = ast.get_docstring(ast.parse(_file(root, module).read_text()))
    if docstring is None:
        raise ValueError(f"{module} has no docstring; say in its first line what it is")
    return docstring
