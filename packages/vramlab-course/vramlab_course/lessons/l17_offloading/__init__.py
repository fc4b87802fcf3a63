"""Lesson 17, Offloading: what this lesson and its exercise alone need."""
