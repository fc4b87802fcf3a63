"""What exercises are made of, beside the judge: programs to repair, work to count, ranks.

The tasks themselves are `tasks` in the rooms of the lessons, and the modules `workshop_...` of
`vramlab_course.workshops`.
"""
