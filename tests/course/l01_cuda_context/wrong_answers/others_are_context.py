"""Takes other processes' memory for the context.

loses: largest_part
leaves: 2
says: You take everything that is used and not reserved for the context.
"""


def largest_part(readings):
    parts = {
        "tensors": readings["allocated"],
        "cache": readings["reserved"] - readings["allocated"],
        "context": readings["total"] - readings["free"] - readings["reserved"],
    }
    return max(parts, key=parts.get)
