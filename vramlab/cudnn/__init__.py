"""What cuDNN takes for convolutions: its library, asked without a GPU, or a table of its answers.

Imports no torch.
"""
