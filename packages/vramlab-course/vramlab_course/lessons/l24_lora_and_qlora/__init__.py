"""Lesson 24, LoRA and QLoRA: what this lesson and its exercise alone need."""
