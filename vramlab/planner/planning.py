"""`vramlab.plan`: the fastest or cheapest plans that fit, as a function."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vramlab import catalogue
from vramlab.errors import UnknownGPUError, VramlabError
from vramlab.planner.models import find_model
from vramlab.planner.search import COUNT, COUNTS, MARGIN, Found, search, search_gpus
from vramlab.programs.transformer_memory import Sizes

ALL = "all"
"""Instead of a GPU's name: all GPUs with a price, or the common ones."""
COLUMNS = ("GPU", "price_per_hour")
"""Of a file of prices."""


class InvalidPrices(VramlabError, ValueError):
    """A file of prices cannot be read; the message says which line, and what to write."""


def plan(
    model: str | Sizes,
    *,
    gpu: str = "A100-80GB",
    gpus: int | None = None,
    prices: Mapping[str, float] | Path | str | None = None,
    count: int = COUNT,
    margin: float = MARGIN,
    vary: Sequence[str] = (),
    tell: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Found:
    """Search for the best plans to train a model: the fastest ones, or the cheapest GPUs.

        found = vramlab.plan("llama-3.1-8b", gpu="L40S", gpus=8, sequence=4096)
        found.fitting[0].plan, found.fitting[0].peak_bytes

    Args:
        model: A name in `vramlab.planner.MODELS`, or sizes.
        gpu: A name in the catalogue, or "all" for all GPUs with a price.
        gpus: Number of GPUs; by default 1, or 1, 2, 4 and 8 with gpu="all".
        prices: Price of one GPU per hour by name, or a CSV file with the columns of `COLUMNS`.
        count: How many plans to return.
        margin: Fraction of the memory to leave free.
        vary: Options to search besides the usual ones: "optimizer", "attention".
        tell: Called with the progress, in a few words.
        **options: Options of `vramlab.planner.Plan` that are fixed, such as sequence=4096.

    Returns:
        The plans that fit, the best first, each with its exact peak and its estimated time; and
        what was tried. An interruption (Ctrl-C) returns what was found until then.

    Raises:
        UnknownModel: No model of that name.
        UnknownGPUError: No GPU of that name.
        UnsupportedPlan: Options that exclude each other.
        InvalidPrices: The file of prices cannot be read.
    """
    sizes = find_model(model) if isinstance(model, str) else model
    listed = read_prices(Path(prices)) if isinstance(prices, (str, Path)) else prices
    known = {catalogue.find(name).name: price for name, price in (listed or {}).items()}
    chosen = {name: value for name, value in options.items() if value is not None}
    arguments: dict[str, Any] = {"count": count, "margin": margin, "vary": vary, "tell": tell}
    if gpu.lower() == ALL:
        places: dict[str, float | None] = dict(known) or {
            each.name: None for each in catalogue.common()
        }
        counts = COUNTS if gpus is None else (gpus,)
        return search_gpus(sizes, places, counts, **arguments, **chosen)
    price = known.get(catalogue.find(gpu).name)
    if listed and price is None:
        raise InvalidPrices(
            f"no price of {gpu}: add it, or use --gpu all to try those with a price"
        )
    number = 1 if gpus is None else gpus
    return search(sizes, gpu, number, price_per_hour=price, **arguments, **chosen)


def read_prices(path: Path) -> dict[str, float]:
    """Read prices of GPUs from a CSV file with the columns GPU and price_per_hour.

    Raises:
        InvalidPrices: It cannot be read; the message names the line.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = [(number, row) for number, row in enumerate(csv.reader(stream), 1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidPrices(f"{path} cannot be read: {error}") from error
    header = tuple(cell.strip() for cell in rows[0][1]) if rows else ()
    if header != COLUMNS:
        raise InvalidPrices(
            f"{path}, line 1: begin with {','.join(COLUMNS)}, not with {','.join(header)!r}"
        )
    prices: dict[str, float] = {}
    for number, row in rows[1:]:
        where = f"{path}, line {number}"
        if len(row) != len(COLUMNS):
            raise InvalidPrices(f"{where}: write a GPU and a price, such as L40S,1.20")
        try:
            name = catalogue.find(row[0].strip()).name
        except UnknownGPUError as error:
            raise InvalidPrices(f"{where}: {error}") from error
        if name in prices:
            raise InvalidPrices(f"{where}: a second price of {name}; leave one of them")
        prices[name] = _price(row[1].strip(), where)
    if not prices:
        raise InvalidPrices(f"{path} has no prices: add lines such as L40S,1.20")
    return prices


def _price(text: str, where: str) -> float:
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 <= price < math.inf:
        raise InvalidPrices(f"{where}: invalid price {text!r}: use a number such as 1.20")
    return price
