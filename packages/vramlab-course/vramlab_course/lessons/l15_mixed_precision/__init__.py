"""Lesson 15, Mixed precision: what this lesson and its exercise alone need."""
