"""Makes logits in float16, and the gradients from them in float32.

says: It computes 33% of its products with numbers of 2 bytes or fewer
"""

import torch


class InPieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, targets):
        count = (targets != -100).sum()
        half, half_weight = x.half(), weight.half()
        total, of_x, of_weight = x.new_zeros(()), torch.empty_like(x), torch.zeros_like(weight)
        for start in range(0, len(x), 64):
            piece = slice(start, start + 64)
            counts = (targets[piece] != -100)[:, None]
            words = targets[piece].clamp(min=0)[:, None]
            scores = (half[piece] @ half_weight.T).float()
            scores -= scores.amax(1, keepdim=True)
            right = scores.gather(1, words)
            sums = scores.exp_().sum(1, keepdim=True)
            total += ((sums.log() - right) * counts).sum()
            scores /= sums
            scores.scatter_add_(1, words, -torch.ones_like(right))
            scores *= counts / count
            torch.mm(scores, weight, out=of_x[piece])
            of_weight.addmm_(scores.T, x[piece])
            del scores
        ctx.save_for_backward(of_x, of_weight)
        return total / count

    @staticmethod
    def backward(ctx, gradient):
        of_x, of_weight = ctx.saved_tensors
        return of_x * gradient, of_weight * gradient, None


def chunked_loss(x, weight, targets):
    return InPieces.apply(x, weight, targets)
