"""Does not see that the copy hides behind all of the GPU's work.

loses: where_time_goes
leaves: 2
says: You held the inputs' way against each part of the GPU's work.
"""


def where_time_goes(step):
    seconds = {
        "products": step["product_flops"] / step["peak_flops_per_s"],
        "memory": step["other_bytes"] / step["bandwidth_bytes_per_s"],
        "inputs": step["sent_bytes"] / step["link_bytes_per_s"],
    }
    return max(seconds, key=seconds.get)
