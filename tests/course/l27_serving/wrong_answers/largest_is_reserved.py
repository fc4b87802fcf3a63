"""Takes the longest copy for a reserved block.

loses: which_server
leaves: 1.5
says: A request that is copied as it grows may become that long, too.
"""


def which_server(trace, page_bytes, longest_bytes):
    sizes = {entry["size"] for entry in trace}
    if longest_bytes in sizes:
        return "reserves"
    if sizes != {page_bytes}:
        return "copies"
    frees = sum(entry["action"] == "free" for entry in trace)
    return "pages" if 2 * frees == len(trace) else "pages, forgets"
