"""Lesson 29, Compiled programs: what this lesson and its exercise alone need."""
