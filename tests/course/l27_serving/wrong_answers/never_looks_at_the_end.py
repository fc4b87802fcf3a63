"""By the sizes alone.

loses: which_server
leaves: 1.5
says: You did not look whether anything is left at the end
"""


def which_server(trace, page_bytes, longest_bytes):
    sizes = {entry["size"] for entry in trace}
    if sizes == {longest_bytes}:
        return "reserves"
    return "pages" if sizes == {page_bytes} else "copies"
