"""Polynomials of degree 2 through measured points, by least squares.

With fractions, so that nothing is lost: bytes over a sequence's length differ by ten orders of
magnitude between its square and the constant.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

Quadratic = tuple[float, float, float]
"""a, b and c of a*x^2 + b*x + c."""


def quadratic_fit(points: Iterable[tuple[int, int]]) -> Quadratic:
    """Return a, b, c for which a*x^2 + b*x + c has the least squared distance from the points.

    A fit of sums is the sum of the fits, point by point: what each part of the memory adds to a
    coefficient can be told apart.

    Args:
        points: (x, y), at least three different x.

    Raises:
        ValueError: there are fewer.
    """
    given = list(points)
    if len({x for x, _ in given}) < 3:
        raise ValueError(f"a parabola needs points at three lengths or more; given: {given}")
    # The normal equations: sums of x^(i+j), and of y*x^i.
    rows = [
        [Fraction(sum(x ** (i + j) for x, _ in given)) for j in (2, 1, 0)]
        + [Fraction(sum(y * x**i for x, y in given))]
        for i in (2, 1, 0)
    ]
    for pivot in range(3):
        rows[pivot] = [value / rows[pivot][pivot] for value in rows[pivot]]
        for other in range(3):
            if other != pivot:
                factor = rows[other][pivot]
                rows[other] = [
                    value - factor * of_pivot
                    for value, of_pivot in zip(rows[other], rows[pivot], strict=True)
                ]
    a, b, c = (float(row[3]) for row in rows)
    return a, b, c
