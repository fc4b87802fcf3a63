"""Tables, timelines and verdicts in notebooks are in the language of the learner's folder.

speak_to_the_reader()     once; `vramlab_course.widgets` does it when it is imported
"""

from __future__ import annotations

from vramlab import words
from vramlab_course.translations.language import ENGLISH, language_here
from vramlab_course.translations.speech import say, say_name
from vramlab_course.widgets.person import in_a_kernel


def speak_to_the_reader() -> None:
    """Do so from now on, in a kernel whose notebook lies in a folder of another language."""
    if in_a_kernel() is not None and language_here() != ENGLISH:
        words.in_readers_language = say
        words.names_in_readers_language = say_name
