"""Acts on the largest term, however little of it a change takes away.

loses: best_change
says: You went by the largest term.
"""


def best_change(states_bytes, layers_bytes, loss_bytes, ranks):
    return "ZeRO-3" if states_bytes > layers_bytes + loss_bytes else "checkpoints"
