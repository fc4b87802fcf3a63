"""Calls load() once, and computes in the smallest pieces.

says: computes most of it in pieces of 2 samples or fewer
"""

def gradient_of_all(model, load, count):
    total = 0.0
    for piece in load(0, count).split(2):
        loss = model(piece).square().sum()
        loss.backward()
        total += loss.item()
    return total
