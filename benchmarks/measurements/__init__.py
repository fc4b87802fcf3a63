"""Published measurements of GPUs, each with the program that it belongs to.

assets/measurements has a file for each source: what was measured, on which GPU and PyTorch, and the
program's arguments. The module of the same name here has the programs. They are written for any
GPU: on a real one they give what was published, on a virtual one what vramlab says of it.

    python -m benchmarks.measurements            run all rows, and write measurements.json
    python -m benchmarks.measurements liger      run one source's, and keep the others

Some sources need packages of their time: `with` in measurements.json names those of each row.
"""
