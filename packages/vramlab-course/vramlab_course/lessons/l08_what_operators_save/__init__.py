"""Lesson 08, What operators save: what this lesson and its exercise alone need."""
