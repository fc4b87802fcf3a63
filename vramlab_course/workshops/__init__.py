"""Workshops: learners build something, and watch it run.

    from vramlab_course.workshops import watch
    watch("workshop_f_chunked_cross_entropy", chunked_loss)

The tasks themselves, with their targets, are in `vramlab_course/tasks/workshop_*.py`.
"""

from vramlab_course.workshops.watch import watch

__all__ = ["watch"]
