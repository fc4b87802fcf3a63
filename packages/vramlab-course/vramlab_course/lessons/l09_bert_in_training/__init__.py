"""Lesson 09, BERT in training: what this lesson and its exercise alone need."""
