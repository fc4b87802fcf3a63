"""Takes the page for the block; the answers that build on blocks go wrong with it.

loses: block_bytes
says: You answered what a page takes.
"""


def block_bytes(requested_bytes):
    return 2 * 2**20
