"""Lesson 07, Inference: what this lesson and its exercise alone need."""
