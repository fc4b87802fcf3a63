"""Gradients become views of their buckets."""

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
                start = 0
                for each in bucket:
                    each.grad = flat[start : start + each.numel()].view_as(each)
                    start += each.numel()
                all_reduce(flat)
                sent.append(flat)

        for parameter in bucket:
            parameter.register_post_accumulate_grad_hook(hook)

    for bucket in buckets:
        send_when_full(bucket)

    def finish():
        for flat in sent:
            flat /= ranks

    return finish
