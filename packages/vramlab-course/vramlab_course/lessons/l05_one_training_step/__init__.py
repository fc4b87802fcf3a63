"""Lesson 05, One training step: what this lesson and its exercise alone need."""
