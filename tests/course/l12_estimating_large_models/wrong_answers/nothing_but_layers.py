"""Forgets what is there without any layer.

loses: most_layers
says: First take off what is there
"""


def most_layers(peaks, batch, limit_bytes):
    shallow, deep, shallow_16, deep_16 = (peak for _, _, peak in peaks)
    layer, layer_16 = (deep - shallow) / 2, (deep_16 - shallow_16) / 2
    return int(limit_bytes / (layer + (batch - 8) / 8 * (layer_16 - layer)))
