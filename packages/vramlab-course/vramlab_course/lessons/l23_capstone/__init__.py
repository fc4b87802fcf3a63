"""Lesson 23, Capstone: fit a model on your GPUs: what this lesson and its exercise alone need."""
