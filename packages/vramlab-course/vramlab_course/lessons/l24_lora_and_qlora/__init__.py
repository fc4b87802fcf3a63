"""Lesson 24, LoRA and QLoRA: what this lesson and its exercise alone need."""

from vramlab_course.on_access import modules_of

__getattr__ = modules_of(__name__)
