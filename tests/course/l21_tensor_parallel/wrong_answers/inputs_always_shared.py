"""Counts two all-reduces in backward, whoever makes the input a DTensor.

loses: sent_bytes
leaves: 2
says: You shared the input in every case.
"""


def sent_bytes(division, shared_input, batch, sequence, width, ranks):
    return 8 * ((ranks - 1) * 2 * batch * sequence * width // ranks)
