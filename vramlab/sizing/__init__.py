"""Which GPU a program needs, and how large a batch a GPU takes: runs of `vramlab run`, compared.

runs.run_once          a program, in a process of its own
gpus.try_gpus          every GPU of the catalogue, by as few runs as it takes
largest.find_largest   the largest value of a program's own option
text                   what was found, to be read
"""
