"""Sends buckets when backward has ended.

loses: bucketed_ddp
says: When is a bucket full?
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
                sent.append(bucket)

        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(hook)

    for bucket in buckets:
        send_when_full(bucket)

    def finish():
        for bucket in sent:
            flat = torch.cat([each.grad.flatten() for each in bucket])
            all_reduce(flat)
            flat /= ranks
            parts = flat.split([each.numel() for each in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad.copy_(part.view_as(parameter))

    return finish
