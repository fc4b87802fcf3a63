"""Lets two full buckets wait, and sends them one after the other.

says: It sends 65.25 KiB only when 322.75 KiB of gradients wait
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
    buckets = divided(parameters, bucket_bytes)
    missing = [len(bucket) for bucket in buckets]
    full, sent = [], []

    def send(bucket):
        flat = torch.cat([each.grad.flatten() for each in bucket])
        for each in bucket:
            each.grad = None
        all_reduce(flat)
        sent.append((bucket, flat))

    def hook_of(number):
        def hook(_):
            missing[number] -= 1
            if not missing[number]:
                full.append(buckets[number])
            while len(full) > 2 or (full and not any(missing)):
                send(full.pop(0))

        return hook

    for number, bucket in enumerate(buckets):
        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(hook_of(number))

    def finish():
        for bucket, flat in sent:
            flat /= ranks
            parts = flat.split([each.numel() for each in bucket])
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad = part.view_as(parameter)

    return finish
