"""Rank 1 sends nothing.

says: different numbers of collectives
"""


def bucketed_ddp(parameters, all_reduce, ranks, bucket_bytes):
    if parameters[0].device.index == 0:
        for each in parameters:
            each.register_post_accumulate_grad_hook(lambda p: all_reduce(p.grad))
    return lambda: None
