"""Divides everything, and leaves out what ZeRO-3 gathers.

loses: choose
says: What is largest there, and what have you left out?
"""


def choose(
    layers,
    states_bytes,
    layers_bytes,
    inputs_bytes,
    loss_bytes,
    gathered_bytes,
    share,
    ranks,
    limit_bytes,
):
    lasting = {0: states_bytes, 3: states_bytes // ranks}
    kept = {"none": layers_bytes, "full": inputs_bytes}
    for checkpointing in ("none", "full"):
        for zero in (0, 3):
            for micro_batch in range(share, 0, -1):
                peak_bytes = lasting[zero] + micro_batch * kept[checkpointing]
                if share % micro_batch == 0 and peak_bytes <= limit_bytes:
                    return {
                        "zero": zero,
                        "micro_batch": micro_batch,
                        "checkpointing": checkpointing,
                    }
    return {}
