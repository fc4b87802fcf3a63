"""Tables in notebooks have captions and headings in the language of the learner's folder.

speak_in_tables()     once; `vramlab_course.widgets` does it when it is imported
"""

from __future__ import annotations

from vramlab import table
from vramlab_course.translations.language import ENGLISH, language_here
from vramlab_course.translations.speech import say
from vramlab_course.widgets.person import in_a_kernel


def speak_in_tables() -> None:
    """Do so from now on, in a kernel whose notebook lies in a folder of another language."""
    if in_a_kernel() is not None and language_here() != ENGLISH:
        table.in_words = say
