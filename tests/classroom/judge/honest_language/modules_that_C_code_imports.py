from decimal import Decimal
from fractions import Fraction
import random, statistics

result = f"{Decimal(1) / 4:.1f}", Fraction(1, 3) + 1, statistics.median([3, 1, 2])
expected = ("0.2", Fraction(4, 3), 2)
