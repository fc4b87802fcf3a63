"""Lesson 26, Mixture of experts: what this lesson and its exercise alone need."""
