"""Fills one bucket as gradients come, and sends it when the next one has no room."""

import torch


def bucketed_ddp(parameters, all_reduce, ranks, bucket_bytes):
    order = list(reversed(parameters))
    came, bucket, sent = set(), [], []

    def send(bucket):
        flat = torch.cat([each.grad.flatten() for each in bucket])
        for each in bucket:
            each.grad = None
        all_reduce(flat)
        sent.append((bucket, flat))

    def hook(parameter):
        nonlocal bucket
        came.add(parameter)
        while order and order[0] in came:
            following = order.pop(0)
            if bucket and sum(each.nbytes for each in (*bucket, following)) > bucket_bytes:
                send(bucket)
                bucket = []
            bucket.append(following)
        if not order:
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
