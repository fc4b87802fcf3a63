"""Divides heads of which there are fewer than GPUs.

loses: token_bytes
leaves: 2.5
says: You divided a head.
"""


def token_bytes(kind, layers, heads, groups, head_size, latent, rotary, ranks):
    if kind == "MLA":
        return 2 * layers * (latent + rotary)
    kept = {"MHA": heads, "GQA": groups, "MQA": 1}[kind]
    return 4 * layers * kept * head_size // ranks
