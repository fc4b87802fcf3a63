import re

size = re.compile(r"(\d+) (KiB|MiB)")
result = size.fullmatch("3 MiB").groups()
expected = ("3", "MiB")
