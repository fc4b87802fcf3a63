"""Lesson 19, DataParallel and DDP: what this lesson and its exercise alone need."""
