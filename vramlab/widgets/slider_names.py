"""Names for sliders, which ipywidgets leaves without.

ipywidgets draws a slider's handle with `role="slider"`, but does not connect it with the label that
stands beside it. A screen reader would say "slider, 512" of all of them, and of a slider over
options the number of the option instead of the option. Nothing in Python reaches the handle, so
what an explorer sends to the page carries this: once it is there, it names the handles after their
labels, and keeps them named as ipywidgets redraws them.

Where the page does not run it, sliders are as ipywidgets makes them.
"""

from __future__ import annotations

from html import escape

_SCRIPT = """
const mark = this;
const nameSliders = box => {
  for (const slider of box.querySelectorAll('.widget-slider')) {
    const name = slider.querySelector('.widget-label').textContent;
    const readout = slider.querySelector('.widget-readout');
    for (const handle of slider.querySelectorAll('[role=slider]')) {
      handle.setAttribute('aria-label', name);
      handle.setAttribute('aria-valuetext', readout.textContent);
    }
    if (readout.isContentEditable) {
      readout.setAttribute('role', 'textbox');
      readout.setAttribute('aria-label', name + ', typed');
    }
  }
};
const begin = () => {
  const box = mark.closest('.widget-vbox');
  if (!box) return setTimeout(begin, 100);
  const kinds = {subtree: true, childList: true, characterData: true};
  new MutationObserver(() => nameSliders(box)).observe(box, kinds);
  nameSliders(box);
};
begin();
"""

# Scripts in HTML that is put into a page are not run; handlers of events are. This picture cannot
# be loaded, shows nothing, and means nothing.
NAMES_SLIDERS = f'<img hidden alt="" src="data:," onerror="{escape(" ".join(_SCRIPT.split()))}">'
"""HTML for a widget in the box (`ipywidgets.VBox`) whose sliders it names."""
