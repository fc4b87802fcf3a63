"""Divides everything by the GPUs.

loses: token_bytes
leaves: 3
says: You divided the latent by the GPUs.
"""


def token_bytes(kind, layers, heads, groups, head_size, latent, rotary, ranks):
    if kind == "MLA":
        return 2 * layers * (latent + rotary) // ranks
    kept = {"MHA": heads, "GQA": groups, "MQA": 1}[kind]
    return 4 * layers * -(-kept // ranks) * head_size
