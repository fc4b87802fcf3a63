"""Add what ipywidgets and JupyterLab leave out for people with a keyboard or a screen reader.

- ipywidgets draws a slider's handle with `role="slider"`, but does not connect it with the label
  that stands beside it. A screen reader would say "slider, 512" of each, and of a slider over
  options the number of the option instead of the option.
- JupyterLab takes keys for shortcuts of the notebook before a drop-down list or a button gets them:
  arrows would go to the next cell instead of the next option, Enter would edit the cell instead of
  pressing the button, and a letter could delete the cell.
- The buttons of ipywidgets' player have pictures and no names.
- Enter in a text field presses no button.
- What has to be scrolled can be reached with the keyboard in some browsers only.

Nothing in Python reaches those elements, so the box of widgets carries a few lines that run in the
page. They fix this as long as the box is there, also when ipywidgets draws parts of it again. Where
a page does not run them, widgets are as ipywidgets makes them.
"""

from __future__ import annotations

from html import escape

COMMITS = "vramlab-commits"
"""Class of the button that Enter presses in the text field of its box."""

_SCRIPT = """
const mark = this;
const icons = {play: 'Play', pause: 'Pause', stop: 'Stop', retweet: 'Repeat'};
const fix = box => {
  const title = box.querySelector('h3')?.textContent;
  if (title) {
    box.setAttribute('role', 'group');
    box.setAttribute('aria-label', title);
  }
  for (const slider of box.querySelectorAll('.widget-slider')) {
    const name = slider.querySelector('.widget-label').textContent;
    const readout = slider.querySelector('.widget-readout');
    for (const handle of slider.querySelectorAll('[role=slider]')) {
      handle.setAttribute('aria-label', name);
      handle.setAttribute('aria-valuetext', readout.textContent);
      handle.setAttribute('aria-disabled', handle.closest('.slider').hasAttribute('disabled'));
    }
    if (readout.isContentEditable) {
      readout.setAttribute('role', 'textbox');
      readout.setAttribute('aria-label', name + ', typed');
    }
  }
  for (const [icon, name] of Object.entries(icons)) {
    for (const picture of box.querySelectorAll('.widget-play .fa-' + icon)) {
      picture.closest('button').setAttribute('aria-label', name);
    }
  }
  for (const view of box.querySelectorAll('.widget-html')) {
    if (view.style.overflow !== 'auto') continue;
    view.tabIndex = 0;
    view.setAttribute('role', 'region');
    view.setAttribute('aria-label', title);
    view.setAttribute('data-lm-suppress-shortcuts', 'true');
  }
  for (const control of box.querySelectorAll('select, button')) {
    control.setAttribute('data-lm-suppress-shortcuts', 'true');
  }
  const commit = box.querySelector('.vramlab-commits');
  if (commit) box.querySelector('input').onkeydown = event => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    commit.focus();
    commit.click();
  };
};
const begin = () => {
  const box = mark.closest('.widget-vbox');
  if (!box) return setTimeout(begin, 100);
  const changes = {
    subtree: true, childList: true, characterData: true, attributeFilter: ['disabled']
  };
  new MutationObserver(() => fix(box)).observe(box, changes);
  fix(box);
};
begin();
"""

# Scripts in HTML that is put into a page are not run; handlers of events are. This picture cannot
# be loaded, shows nothing, and means nothing.
MENDS_ITS_BOX = f'<img hidden alt="" src="data:," onerror="{escape(" ".join(_SCRIPT.split()))}">'
"""HTML for a widget in the box (`ipywidgets.VBox`) whose controls it fixes."""


def status_html(words: str) -> str:
    """Write a paragraph that screen readers read out when it changes."""
    return f'<p role="status" aria-live="polite">{escape(words)}</p>'
