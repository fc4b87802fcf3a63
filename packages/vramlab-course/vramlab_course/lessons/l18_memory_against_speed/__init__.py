"""Lesson 18, Memory against speed: what this lesson and its exercise alone need."""
