"""The layers as a tuple."""

choice = dict(schedule="1F1B", micro_batches=2**5, layers=(7, 8, 9, 1))
