import torch

try:
    import triton
except ImportError:
    triton = None
try:
    from torch import no_such_function
except ImportError:
    no_such_function = None

result = triton, no_such_function, hasattr(torch, "compile"), getattr(torch, "compile", None)
expected = None, None, False, None
