"""Ops in, allocations out: the pretended machine, and the modes through which it sees ops."""
