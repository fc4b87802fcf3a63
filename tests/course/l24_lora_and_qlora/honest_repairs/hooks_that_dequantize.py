"""Hooks that save what the weight is made of, and make it again."""

import torch


def train(frozen, adapters, dequantize, load, steps):
    flat = sum(map(list, adapters), [])
    opt = torch.optim.AdamW(flat)
    for step in range(steps):
        x = load(step)
        for (packed, scales), (down, up) in zip(frozen, adapters):
            weight = dequantize(packed, scales)
            address = weight.data_ptr()

            def pack(t, address=address, kept=(packed, scales)):
                return kept if t.data_ptr() == address and t.shape == (512, 512) else t

            def unpack(kept):
                if isinstance(kept, tuple):
                    return dequantize(*kept).t()
                return kept

            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                frozen_part = torch.nn.functional.linear(x, weight)
            del weight
            x = torch.tanh(frozen_part + (x @ down.T) @ up.T)
        x.square().mean().backward()
        opt.step()
        opt.zero_grad()
