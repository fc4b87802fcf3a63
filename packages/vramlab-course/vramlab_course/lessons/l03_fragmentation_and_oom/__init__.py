"""Lesson 03, Fragmentation and out of memory: what this lesson and its exercise alone need."""
