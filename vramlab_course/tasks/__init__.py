"""One file per exercise: what its tasks are, how their truth is measured, which mistakes are known.

Each defines `EXERCISE`. The notebook of the same name in `solutions/` asks the questions.
"""
