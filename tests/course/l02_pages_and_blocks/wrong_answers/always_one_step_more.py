"""Goes to the next step even where the request ends on one.

loses: block_bytes
leaves: 1
says: You always go to the next step
"""


def block_bytes(requested_bytes):
    return (requested_bytes // 512 + 1) * 512
