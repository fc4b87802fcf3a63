"""The verbs of the command line for teachers: one file each."""

AUDIENCE = "for teachers"
ORDER = 2
