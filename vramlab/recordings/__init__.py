"""Recordings of real GPUs, and the virtual GPU held against them.

    store.RecordingFile   the files: one of readable numbers, and traces beside it
    record.record         run experiments and zoo on a GPU, each in a process of its own
    compare.compare       hold the virtual GPU against a recording, down to the allocation

A recording is one machine's: one GPU, one driver, one PyTorch. What is recorded are entries:
`context` (what CUDA takes by being there), `experiment/NAME` and `zoo/ID`.
"""
