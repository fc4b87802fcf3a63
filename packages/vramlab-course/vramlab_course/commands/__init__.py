"""The verbs of the command line for learners: one file each."""

AUDIENCE = "for learners"
ORDER = 1
