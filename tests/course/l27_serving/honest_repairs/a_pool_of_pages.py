"""One pool of pages with tables, as servers have it; it is as large as is ever needed."""

import torch


def serve(requests, longest, load):
    steps = max(arrival + length for arrival, length in requests)
    needed = max(
        sum(min(step - arrival, length - 1) + 1 for arrival, length in requests if 0 <= step - arrival < length)
        for step in range(steps)
    )  # fmt: skip
    pool = torch.empty(needed, 2, 64, 256, device="cuda")
    free, tables = list(range(needed)), [[] for _ in requests]
    outputs = [None] * len(requests)
    for step in range(steps):
        for request, (arrival, length) in enumerate(requests):
            if not 0 <= step - arrival < length:
                continue
            query, key, value = load(request, step - arrival)
            page = free.pop()
            pool[page, 0], pool[page, 1] = key, value
            tables[request].append(page)
            if len(tables[request]) == length:
                keys, values = (pool[tables[request], part].view(-1, 256) for part in (0, 1))
                outputs[request] = torch.softmax(query @ keys.T / 16, -1) @ values
                free += tables[request]
                del keys, values
    return outputs
