"""Adds up everything that is free.

loses: largest_tensor
says: You add up everything that is free.
"""


def largest_tensor(segments, free_bytes):
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                free_bytes += block["size"]
    return free_bytes
