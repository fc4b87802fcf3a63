"""A notebook that is open in JupyterLab, and what a reader does there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import nbformat
from running_lab import RunningLab

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

OPEN_MS = 240_000
RUN_MS = 300_000
"""For a whole lesson. It takes well below a minute on an idle machine; not all are idle."""
ANSWER_MS = 60_000
"""For what a kernel answers to one move of a control."""

_DONE = """() => {
    const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')]
        .map(prompt => prompt.textContent.trim());
    return /[0-9]/.test(prompts[0]) && !prompts.includes('[*]:');
}"""

# What a reader sees of a widget: its text, its pictures, and what is chosen.
_SHOWN = """cell => [...cell.querySelectorAll('.jp-OutputArea-output .widget-html-content')]
    .map(part => part.innerHTML).join('\\n')"""

Notebook = Any


class NotebookPage:
    """One notebook in one page of the browser.

    Attributes:
        page: Playwright's page.
        path: of the notebook, from the course's folder.
        cells: the cells as they were when it was opened.

    Args:
        page: a new page.
        lab: the server.
        path: of the notebook, from the course's folder.
        application: `lab/tree`, or `notebooks` for the narrow page behind JupyterLab's button
            "Notebook".
    """

    def __init__(
        self, page: Page, lab: RunningLab, path: str, application: str = "lab/tree"
    ) -> None:
        self.page = page
        self.path = path
        self._lab = lab
        self.cells = self._read().cells
        page.goto(lab.address(f"{application}/{path}?reset"))
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait for the kernel."""
        ready = self.page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        ready.first.wait_for(state="attached", timeout=OPEN_MS)  # a phone has no room for it
        cells = self.page.locator(".jp-Notebook .jp-Cell")
        cells.nth(len(self.cells) - 1).wait_for(state="attached", timeout=OPEN_MS)

    def cell(self, cell_id: str) -> Locator:
        """A cell by its id in the notebook."""
        (index,) = (i for i, cell in enumerate(self.cells) if cell.id == cell_id)
        cell = self.page.locator(".jp-Notebook .jp-Cell").nth(index)
        cell.scroll_into_view_if_needed()
        return cell

    def menu(self, menu: str, item: str) -> None:
        """Choose an item of JupyterLab's menus."""
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.get_by_role("menuitem", name=item, exact=True).click()

    def run_all(self) -> None:
        """Run the notebook from top to bottom in its fresh kernel."""
        begun = self.page.locator(".jp-CodeCell .jp-InputArea-prompt").first
        for _ in range(5):
            self.menu("Run", "Run All Cells")
            self.page.wait_for_timeout(2000)
            if begun.inner_text().strip() != "[ ]:":
                break  # JupyterLab drops the command where it is still busy opening the notebook
        self.page.wait_for_function(_DONE, timeout=RUN_MS)

    def run(self, cell_id: str) -> None:
        """Run one cell, and stay there."""
        cell = self.cell(cell_id)
        before = cell.locator(".jp-InputArea-prompt").inner_text()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_function(
            "([it, before]) => /[0-9]/.test(it.innerText) && it.innerText !== before",
            arg=[cell.locator(".jp-InputArea-prompt").element_handle(), before],
            timeout=ANSWER_MS,
        )
        cell.get_by_role("status").last.wait_for()

    def save(self) -> Notebook:
        """Save the notebook as readers do, and return what is in the file now."""
        self.page.keyboard.press("Control+s")
        self.page.locator(".jp-mod-dirty").first.wait_for(state="detached", timeout=OPEN_MS)
        return self._read()

    def fill_in(self, cell_id: str, source: str) -> None:
        """Replace what a code cell says, by typing."""
        self.cell(cell_id).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)

    def lay_out_everything(self) -> None:
        """Let JupyterLab lay out all cells, as a check of what they look like needs it."""
        self.page.add_style_tag(content=".jp-Cell { content-visibility: visible !important; }")

    def shown(self, cell: Locator) -> str:
        """What the widgets of a cell show, as HTML."""
        text: str = cell.evaluate(_SHOWN)
        return text

    def wait_for_change(self, cell: Locator, act: Callable[[], object]) -> str:
        """Do something to a cell's widgets, wait until they show something else, and return it."""
        before = self.shown(cell)
        act()
        self.page.wait_for_function(
            f"""([cell, before]) => {{
                const shown = ({_SHOWN})(cell);
                return shown !== before && !shown.includes('working ...');
            }}""",
            arg=[cell.element_handle(), before],
            timeout=ANSWER_MS,
        )
        return self.shown(cell)

    def drag(self, handle: Locator, right_px: float) -> None:
        """Drag something with the mouse."""
        handle.scroll_into_view_if_needed()
        box = handle.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x + right_px, y, steps=5)
        self.page.mouse.up()

    def close(self) -> None:
        """Close the page and end its kernel, which would keep its memory."""
        headers = {"Authorization": f"token {self._lab.token}"}
        kernels = f"{self._lab.url}api/kernels"
        for kernel in self.page.request.get(kernels, headers=headers).json():
            self.page.request.delete(f"{kernels}/{kernel['id']}", headers=headers)
        self.page.close()

    def _read(self) -> Notebook:
        return nbformat.read(self._lab.course / self.path, as_version=nbformat.NO_CONVERT)


def shows_something(output: Notebook) -> bool:
    """Whether a saved output is more than what a cell that ran for long leaves behind."""
    return bool(output.get("data", {}).get("text/html") != "")


def faults(notebook: Notebook) -> list[str]:
    """What a reader would not want to see in a notebook that was run from top to bottom."""
    found = []
    expected = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        expected += 1
        if cell.execution_count != expected:
            found.append(f"{cell.id}: run as {cell.execution_count}, not as {expected}")
        for output in cell.outputs:
            if output.output_type == "error":
                found.append(f"{cell.id}: {output.ename}: {output.evalue}")
            elif output.get("name") == "stderr":
                found.append(f"{cell.id}: on stderr: {output.text}")
    return found
