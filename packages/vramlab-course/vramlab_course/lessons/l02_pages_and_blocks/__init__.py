"""Lesson 02, Pages and blocks: what this lesson and its exercise alone need."""
