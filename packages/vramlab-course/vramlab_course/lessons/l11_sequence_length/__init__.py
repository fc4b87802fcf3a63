"""Lesson 11, Sequence length: what this lesson and its exercise alone need."""
