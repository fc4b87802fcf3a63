"""Lesson 22, Pipeline parallelism: what this lesson and its exercise alone need."""
