"""Lesson 14, Gradient checkpointing: what this lesson and its exercise alone need."""
