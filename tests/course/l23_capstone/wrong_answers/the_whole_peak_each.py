"""Takes the whole peak of one sequence for each sequence.

loses: largest_micro_batch
says: You took the whole peak for each sequence.
"""


def largest_micro_batch(one_bytes, two_bytes, share, limit_bytes):
    most = limit_bytes // one_bytes
    return max(n for n in range(1, share + 1) if share % n == 0 and n <= most)
