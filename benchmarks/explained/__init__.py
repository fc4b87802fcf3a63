"""How right `vramlab explain` is about snapshots whose truth is known.

Each program of this folder runs on a virtual GPU, which knows what every block is for. The snapshot
that the run leaves has only what a snapshot of a real GPU has: what `vramlab explain` reads from it
is compared with the truth. On the native engine, the allocator that fills the snapshot is PyTorch's
own, and a replay of its requests has to reserve what it reserved.

    python -m benchmarks.explained    run all on both engines; writes results.json
"""
