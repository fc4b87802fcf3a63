"""Lesson 27, Serving: what this lesson and its exercise alone need."""
