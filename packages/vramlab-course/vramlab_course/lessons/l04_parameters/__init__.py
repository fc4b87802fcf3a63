"""Lesson 04, Parameters: what this lesson and its exercise alone need."""
