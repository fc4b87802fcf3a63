"""Lesson 10, Batch size: what this lesson and its exercise alone need."""
