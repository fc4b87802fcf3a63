"""Lesson 30, Hunting a leak: what this lesson and its exercise alone need."""
