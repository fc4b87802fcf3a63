"""Programs of the lessons: models, techniques, and the ranks of processes."""
