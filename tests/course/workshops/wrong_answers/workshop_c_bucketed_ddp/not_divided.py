"""Forgets to divide by the ranks.

loses: bucketed_ddp
says: That was rank 0; both ranks need the mean over all ranks.
"""

import torch


def bucketed_ddp(parameters, all_reduce, ranks, bucket_bytes):
    buckets = [[]]
    for parameter in reversed(parameters):
        held = sum(each.nbytes for each in buckets[-1])
        if buckets[-1] and held + parameter.nbytes > bucket_bytes:
            buckets.append([])
        buckets[-1].append(parameter)
    sent = []

    def send_when_full(bucket):
        missing = [len(bucket)]

        def hook(_):
            missing[0] -= 1
            if not missing[0]:
                flat = torch.cat([each.grad.flatten() for each in bucket])
                all_reduce(flat)
                sent.append((bucket, flat))

        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(hook)

    for bucket in buckets:
        send_when_full(bucket)

    def finish():
        for bucket, flat in sent:
            parts = flat.split([each.numel() for each in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad.copy_(part.view_as(parameter))

    return finish
