"""All buckets are sent with the first gradient, and filled while backward goes on.

says: the gradients are wrong
"""

import torch


def bucketed_ddp(parameters, all_reduce, ranks, bucket_bytes):
    buckets = [[]]
    for parameter in reversed(parameters):
        held = sum(each.nbytes for each in buckets[-1])
        if buckets[-1] and held + parameter.nbytes > bucket_bytes:
            buckets.append([])
        buckets[-1].append(parameter)
    flats, views = [], {}

    def ready(parameter):
        if not flats:
            for bucket in buckets:
                flat = torch.zeros(sum(each.numel() for each in bucket), device=parameter.device)
                flats.append(flat)
                parts = flat.split([each.numel() for each in bucket])
                for each, part in zip(bucket, parts, strict=True):
                    views[each] = part.view_as(each)
                all_reduce(flat)
        views[parameter].copy_(parameter.grad)
        parameter.grad = views[parameter]

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(ready)

    def finish():
        for flat in flats:
            flat /= ranks

    return finish
