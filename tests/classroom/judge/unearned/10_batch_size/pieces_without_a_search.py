"""Always takes small pieces, which fit whatever the memory.

says: computes most of it in pieces of 8 samples or fewer
"""

def gradient_of_all(model, load, count):
    total = 0.0
    for start in range(0, count, 8):
        loss = model(load(start, start + 8)).square().sum()
        loss.backward()
        total += loss.item()
    return total
