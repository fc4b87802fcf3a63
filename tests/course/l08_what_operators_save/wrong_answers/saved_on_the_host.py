"""Lets everything wait on the host.

loses: quick_gelu
says: to the host.
"""

import torch


def quick_gelu(x):
    with torch.autograd.graph.save_on_cpu():
        return x * torch.sigmoid(1.702 * x)
