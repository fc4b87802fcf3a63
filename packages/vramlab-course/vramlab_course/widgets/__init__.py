"""Explore GPU memory with ipywidgets in a notebook, and predict it before it is measured.

    predict(key)                commit to a number or a range before it is shown
    prediction_score()          what you predicted so far, and the points for it
    start_page()                the course, what you have done of it, and what comes next
    show_timeline(timeline)     memory over time: hover a block for its tensor, line and lifetime
    allocator_explorer()        what the caching allocator makes of allocations and frees
    parameters_explorer()       what layers take by existing, and what training adds
    training_step_explorer()    how batch, width and optimizer shape a training step's memory
    steps_explorer(steps)       when recorded steps compute and communicate, at other rates
    your_script(lesson)         your own script under `vramlab run`, kept from lesson to lesson
    Explorer, View              the base of further ones: see `vramlab_course.widgets.explorer`

What explorers measure, they measure on virtual GPUs of their own: whatever is attached in the
notebook is left alone. Importing this package in a notebook lets cells that run for long say what
they are at (`running_cell`), and tables, timelines and verdicts the language of the learner's
folder (`spoken_frames`).
"""

from vramlab_course.widgets.allocator_explorer import allocator_explorer
from vramlab_course.widgets.course_progress import start_page
from vramlab_course.widgets.explorer import Explorer, View
from vramlab_course.widgets.parameters_explorer import parameters_explorer
from vramlab_course.widgets.predict import Answer, Prediction, predict
from vramlab_course.widgets.prediction_record import prediction_score
from vramlab_course.widgets.running_cell import say_what_long_cells_do
from vramlab_course.widgets.spoken_frames import speak_to_the_reader
from vramlab_course.widgets.steps_explorer import steps_explorer
from vramlab_course.widgets.timeline import show_timeline
from vramlab_course.widgets.training_step_explorer import training_step_explorer
from vramlab_course.widgets.your_script import your_script

__all__ = [
    "Answer",
    "Explorer",
    "Prediction",
    "View",
    "allocator_explorer",
    "parameters_explorer",
    "predict",
    "prediction_score",
    "show_timeline",
    "start_page",
    "steps_explorer",
    "training_step_explorer",
    "your_script",
]

say_what_long_cells_do()
speak_to_the_reader()
