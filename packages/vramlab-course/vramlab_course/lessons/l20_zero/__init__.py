"""Lesson 20, ZeRO: what this lesson and its exercise alone need."""
