import numpy as np
from numpy.typing import NDArray

Sizes = NDArray[np.int64]


def total(sizes: Sizes | list[int]) -> int:
    return int(sizes.sum()) if isinstance(sizes, np.ndarray) else sum(sizes)


result = total(np.array([1, 2])), total([1, 2]), type(np.zeros(1)) is np.ndarray
expected = (3, 3, True)
