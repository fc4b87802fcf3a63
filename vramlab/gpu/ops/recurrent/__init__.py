"""LSTMs, GRUs and sequences of different lengths, as CUDA and cuDNN run them."""
