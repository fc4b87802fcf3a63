"""Lesson 16, Lean optimizers: what this lesson and its exercise alone need."""
