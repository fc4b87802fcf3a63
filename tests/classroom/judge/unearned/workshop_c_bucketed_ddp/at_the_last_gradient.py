"""Sends all buckets in the hook of the last gradient: backward runs, and nothing overlaps with it.

says: It sends 65.25 KiB only when 483.25 KiB of gradients wait
"""

import torch


def divided(parameters, bucket_bytes):
    buckets = [[]]
    for parameter in reversed(parameters):
        held = sum(each.nbytes for each in buckets[-1])
        if buckets[-1] and held + parameter.nbytes > bucket_bytes:
            buckets.append([])
        buckets[-1].append(parameter)
    return buckets


def bucketed_ddp(parameters, all_reduce, ranks, bucket_bytes):
    missing = [len(parameters)]
    sent = []

    def send(bucket):
        flat = torch.cat([each.grad.flatten() for each in bucket])
        for each in bucket:
            each.grad = None
        all_reduce(flat)
        sent.append((bucket, flat))

    def hook(_):
        missing[0] -= 1
        if not missing[0]:
            for bucket in divided(parameters, bucket_bytes):
                send(bucket)

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(hook)

    def finish():
        for bucket, flat in sent:
            flat /= ranks
            parts = flat.split([each.numel() for each in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad = part.view_as(parameter)

    return finish
