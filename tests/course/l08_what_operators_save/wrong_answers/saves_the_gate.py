"""Writes a Function, and saves as much as before.

loses: quick_gelu
says: what else does each call keep?
"""


def quick_gelu(x):
    class QuickGELU(torch.autograd.Function):  # noqa: F821  (imported in another cell)
        @staticmethod
        def forward(ctx, x):
            gate = torch.sigmoid(1.702 * x)  # noqa: F821
            ctx.save_for_backward(x, gate)
            return x * gate

        @staticmethod
        def backward(ctx, gradient):
            x, gate = ctx.saved_tensors
            return gradient * (gate + 1.702 * x * gate * (1 - gate))

    return QuickGELU.apply(x)
