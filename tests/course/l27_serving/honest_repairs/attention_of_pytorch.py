"""PyTorch's attention, over pages that are concatenated in deques."""

import collections

import torch


def serve(requests, longest, load):
    pages = collections.defaultdict(collections.deque)
    outputs = [None] * len(requests)
    for step in range(1 + max(arrival + length for arrival, length in requests)):
        for request, (arrival, length) in enumerate(requests):
            if not arrival <= step < arrival + length:
                continue
            query, *page = load(request, step - arrival)
            pages[request].append(page)
            if step - arrival == length - 1:
                keys, values = map(torch.cat, zip(*pages.pop(request), strict=True))
                del page
                outputs[request] = torch.nn.functional.scaled_dot_product_attention(
                    query[None], keys[None], values[None]
                )[0]
                del keys, values
    return outputs
