"""What the page docs/explain.md runs in a reader's browser, under Pyodide. It imports no torch.

    reports.py      explain a file or a pasted message, as HTML
    timelines.py    a GPU of a snapshot over time, also under other settings
    playground.py   a small language that drives the allocator

`docs/builder/browser.py` puts it on the site, with the parts of vramlab that it needs; the scripts
that call it are in docs/_static/explain/. Nothing here is sent anywhere: the page has no server.
"""
