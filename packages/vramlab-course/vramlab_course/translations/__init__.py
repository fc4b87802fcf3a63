"""The course in other languages: what its notebooks say, and what its predictions ask.

    vramlab lab --language zh                         a learner's folder in Chinese
    python -m vramlab_course.translations             brings catalogues up to date, after a change
    python -m vramlab_course.translations --check     names what is stale (`make check`)

English is the one source. What a language says for a notebook is a PO file in the language's
folder, such as `zh/lessons/05_one_training_step.po`: one entry for each Markdown cell, and for each
text that its predictions show, with the cell's id and the English that was translated. Where that
is no longer what the notebook says, the entry is stale, and the English is shown. Code cells are
never touched: what they show is translated when it is shown.

Why PO files: translators' editors open them (Poedit, Weblate), and show what has changed. Why Babel
reads and writes them, and not polib: it is kept up, and JupyterLab and Sphinx bring it anyway.

- `language.py`: which languages there are, and which one a folder is in
- `catalogue.py`: the entries of PO files
- `texts.py`: what is to be translated
- `notebook.py`: a notebook in another language
- `speech.py`: what widgets say
- `__main__.py`: the command above
"""
