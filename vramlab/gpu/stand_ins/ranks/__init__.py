"""What stands in where a program has several processes or GPUs: NCCL, ranks, shared tensors."""
