"""Lesson 12, Estimating large models: what this lesson and its exercise alone need."""
