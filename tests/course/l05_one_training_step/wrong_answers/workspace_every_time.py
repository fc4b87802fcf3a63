"""Takes the workspace for a part of every forward pass.

loses: forward_bytes
says: You added cuBLAS's workspace. It is taken once
"""


def forward_bytes(batch, widths):
    outputs = sum(-(-4 * batch * width // 512) * 512 for width in widths[1:])
    return outputs + 8_519_680
