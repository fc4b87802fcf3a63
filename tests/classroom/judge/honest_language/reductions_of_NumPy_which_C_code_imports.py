import numpy as np

x = np.array([[3, 1], [2, 4]])
result = [x.min(), x.max(axis=0).sum(), x.mean(), x.std() > 0, x.any(), x.argmax()]
expected = [1, 7, 2.5, True, True, 3]
