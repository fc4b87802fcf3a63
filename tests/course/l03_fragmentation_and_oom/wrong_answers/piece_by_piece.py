"""Forgets that empty segments go back to the driver.

loses: largest_tensor
leaves: 2
says: You look at each piece, and at what the driver has, one by one.
"""


def largest_tensor(segments, free_bytes):
    pieces = [b["size"] for s in segments for b in s["blocks"] if b["state"] == "inactive"]
    return max(free_bytes, *pieces)
