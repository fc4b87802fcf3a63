"""Takes a layer as it was with 8 texts.

loses: most_layers
says: You took what a layer takes with 8 texts.
"""


def most_layers(peaks, batch, limit_bytes):
    shallow, deep, shallow_16, deep_16 = (peak for _, _, peak in peaks)
    layer = (deep - shallow) / 2
    floor, floor_16 = shallow - 2 * layer, shallow_16 - (deep_16 - shallow_16)
    return int((limit_bytes - floor - (batch - 8) / 8 * (floor_16 - floor)) / layer)
