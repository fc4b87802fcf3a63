"""Explain a real GPU's out-of-memory error. Nothing here imports torch.

message.py       the numbers of an error message, and what they suggest
unpickling.py    reads a memory snapshot without running what is in the file
traces.py        what a snapshot says about each GPU, event by event
layout.py        where segments and blocks lay when a trace begins
categories.py    whose line allocated a block, and what for
whatif.py        the same requests under other allocator settings
remedies.py      changes to the program, tried on a trace
explanation.py   what is reported about a snapshot
"""
