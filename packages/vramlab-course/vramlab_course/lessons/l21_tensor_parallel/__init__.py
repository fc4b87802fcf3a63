"""Lesson 21, Tensor parallelism: what this lesson and its exercise alone need."""
