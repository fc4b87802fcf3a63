"""Lesson 06, Optimizer states: what this lesson and its exercise alone need."""
