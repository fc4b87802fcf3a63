"""The kernel chosen by name, with the scale given."""

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def attention(query, key, value):
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION]):
        return scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=query.size(-1) ** -0.5
        )
