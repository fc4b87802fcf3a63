"""Lesson 13, Gradient accumulation: what this lesson and its exercise alone need."""
