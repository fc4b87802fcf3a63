"""An interactive timeline: hover a block, and see its tensor, line, bytes and lifetime.

    TimelineView            the data: blocks, stages, lines
    recorded.view_of        that of a recorded `vramlab.measure.Timeline`
    timeline_html(view)     a piece of HTML that draws it and answers

The piece carries its own script and style, and loads nothing: it works in JupyterLab, VS Code and
Colab, in the pages that nbconvert makes, and in a file that is opened without a network. Where a
page runs no scripts, what is given as the still picture stays.

It is drawn by a script of our own, on a canvas. Libraries would do less, and weigh more: to open
without a network, each file would carry plotly's script of 4.8 MB (7.1) or Bokeh's of 1.3 MB (3.9),
which have no way to go through blocks with the keyboard. A widget, such as one of anywidget, shows
nothing in a page that no kernel stands behind.

Only `recorded` imports torch: the page of the site that explains snapshots runs the rest.
"""

from vramlab.viz.colors import CATEGORY_COLORS
from vramlab.viz.timeline_html import timeline_html
from vramlab.viz.timeline_view import TimelineView, ViewBlock

__all__ = ["CATEGORY_COLORS", "TimelineView", "ViewBlock", "timeline_html"]
