"""The verbs of the command line that need only the virtual GPU: one file each."""

AUDIENCE = "for your own programs"
ORDER = 0
