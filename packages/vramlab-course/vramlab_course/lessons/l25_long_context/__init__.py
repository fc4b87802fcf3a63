"""Lesson 25, Long context: what this lesson and its exercise alone need."""
