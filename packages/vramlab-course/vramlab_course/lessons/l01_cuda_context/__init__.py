"""Lesson 01, The CUDA context: what this lesson and its exercise alone need."""
