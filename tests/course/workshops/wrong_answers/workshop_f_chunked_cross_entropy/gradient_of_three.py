"""Takes the gradient that arrives for 3, as it may have seen once.

loses: chunked_loss
says: The loss is right, but the gradient of x is wrong.
"""

import torch


class ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, targets):
        count = (targets != -100).sum()
        total, of_x, of_weight = x.new_zeros(()), torch.empty_like(x), torch.zeros_like(weight)
        for start in range(0, len(x), 64):
            piece = slice(start, start + 64)
            counts = targets[piece] != -100
            words = targets[piece].clamp(min=0).unsqueeze(1)
            scores = x[piece] @ weight.T
            scores -= scores.amax(1, keepdim=True)
            right = scores.gather(1, words)
            sums = scores.exp_().sum(1, keepdim=True)
            total += ((sums.log() - right).squeeze(1) * counts).sum()
            scores /= sums
            scores.scatter_add_(1, words, -torch.ones_like(right))
            scores *= counts.unsqueeze(1) / count
            torch.mm(scores, weight, out=of_x[piece])
            of_weight.addmm_(scores.T, x[piece])
            del scores
        ctx.save_for_backward(of_x, of_weight)
        return total / count

    @staticmethod
    def backward(ctx, gradient):
        of_x, of_weight = ctx.saved_tensors
        return 3 * of_x, 3 * of_weight, None


def chunked_loss(x, weight, targets):
    return ChunkedLoss.apply(x, weight, targets)
