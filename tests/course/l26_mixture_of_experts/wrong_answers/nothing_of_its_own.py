"""Takes all that a rank keeps for tokens that came.

loses: most_tokens
says: Every rank also keeps something for its own.
"""


def most_tokens(grown_bytes, tokens, width, inner):
    return round(max(grown_bytes) / (4 * (width + 2 * inner)))
