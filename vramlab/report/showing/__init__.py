"""A summary made readable: as text, on a terminal, as a page, beside another one."""
