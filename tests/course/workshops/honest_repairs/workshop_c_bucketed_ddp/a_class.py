"""A class for a bucket; gradients are divided before they are sent."""

import torch


class Bucket:
    def __init__(self, all_reduce, ranks):
        self.all_reduce, self.ranks = all_reduce, ranks
        self.parameters, self.ready = [], 0

    @property
    def size(self):
        return sum(each.numel() * each.element_size() for each in self.parameters)

    def add(self, parameter):
        self.parameters.append(parameter)
        parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def on_gradient(self, parameter):
        self.ready += 1
        if self.ready == len(self.parameters):
            self.flat = torch.cat([each.grad.reshape(-1) for each in self.parameters])
            self.flat.div_(self.ranks)
            self.all_reduce(self.flat)

    def unpack(self):
        start = 0
        for each in self.parameters:
            each.grad.view(-1).copy_(self.flat[start : start + each.numel()])
            start += each.numel()


def bucketed_ddp(parameters, all_reduce, ranks, bucket_bytes):
    buckets = []
    for parameter in list(parameters)[::-1]:
        size = parameter.numel() * parameter.element_size()
        if not buckets or buckets[-1].size + size > bucket_bytes:
            buckets.append(Bucket(all_reduce, ranks))
        buckets[-1].add(parameter)

    def finish():
        for bucket in buckets:
            bucket.unpack()

    return finish
