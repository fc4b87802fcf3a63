"""The verbs of the command line that need the virtual GPU only: one file each."""

AUDIENCE = "for any program"
ORDER = 0
