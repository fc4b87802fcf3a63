"""Lesson 28, Eight bits and fewer: what this lesson and its exercise alone need."""
