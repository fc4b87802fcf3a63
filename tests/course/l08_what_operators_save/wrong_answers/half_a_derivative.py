"""Forgets that the gate depends on x, too.

loses: quick_gelu
says: the loss is the same, but the gradients are not.
"""


def quick_gelu(x):
    class QuickGELU(torch.autograd.Function):  # noqa: F821  (imported in another cell)
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(1.702 * x)  # noqa: F821

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * torch.sigmoid(1.702 * x)  # noqa: F821

    return QuickGELU.apply(x)
