"""Ops in, allocations out: the machine that is pretended, and the modes through which it sees ops."""
