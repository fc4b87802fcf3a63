"""Recordings of real GPUs, and comparisons of the virtual GPU with them.

    store.RecordingFile   the files: one of readable numbers, and traces beside it
    record.record         run experiments and zoo on a GPU, each in a process of its own
    compare.compare       compare the virtual GPU with a recording, down to the allocation

A recording is one machine's: one GPU, one driver, one PyTorch. What is recorded are entries:
`context` (what CUDA takes by being there), `experiment/NAME` and `zoo/ID`.
"""
