"""One colour for each meaning.

Colours are those of Okabe and Ito ("Color Universal Design", 2008), which people with any common
colour vision tell apart.
"""

from __future__ import annotations

from vramlab.categories import Category

CATEGORY_COLORS: dict[Category, str] = {
    Category.PARAMETERS: "#0072B2",
    Category.BUFFERS: "#CC79A7",
    Category.OPTIMIZER_STATES: "#56B4E9",
    Category.GRADIENTS: "#009E73",
    Category.INPUTS: "#F0E442",
    Category.WORKSPACES: "#CC79A7",
    Category.OTHER: "#BBBBBB",
    Category.ACTIVATIONS: "#E69F00",
    Category.TEMPORARIES: "#D55E00",
}
"""In the order in which pictures stack them."""
