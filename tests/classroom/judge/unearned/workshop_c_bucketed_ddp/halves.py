"""Sends half of the bytes, in bfloat16.

says: Rank 0 sent 241.62 KiB by all-reduce of the 483.25 KiB that its gradients have
"""


def bucketed_ddp(parameters, all_reduce, ranks, bucket_bytes):
    sent = {}

    def send(parameter):
        sent[parameter] = parameter.grad.bfloat16()
        all_reduce(sent[parameter])

    for each in parameters:
        each.register_post_accumulate_grad_hook(send)

    def finish():
        for parameter, total in sent.items():
            parameter.grad = total.float() / ranks

    return finish
