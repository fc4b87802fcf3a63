"""Builds the site into build/site/html: `make site`, or `python -m docs.builder`.

One job each, in the order in which they run:

- `lessons.py` runs the lessons, in parallel, and keeps what they show
- `reference.py` writes the pages of the API reference; `docstrings.py` makes reST of docstrings
- `other_languages.py` makes the pages of translated lessons, of the same runs
- `sources.py` puts all pages into one folder, from which Sphinx builds (`docs/conf.py`)
- `pictures.py` moves pictures out of pages into files
- `browser.py` adds what docs/explain.md runs in the browser: Pyodide, and part of vramlab
- `pages.py` reads the finished pages and says what is wrong with them: links, pictures, headings

Beside it, for those who open notebooks on other sites:

- `address.py` says where the course is published
- `colab.py` puts a cell into notebooks that installs the course in Colab
"""
