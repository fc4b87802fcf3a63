"""Submissions from Canvas, Moodle and Gradescope; scores and feedback for them."""
