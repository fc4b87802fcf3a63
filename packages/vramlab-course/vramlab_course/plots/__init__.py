"""Pictures of where GPU memory is, drawn from results, snapshots and timelines. Measures nothing.

    draw_segments(snapshot)     the allocator's segments and blocks, to scale
    draw_timeline(timeline)     allocated bytes over time by category, with stages and peak
    draw_stages(result)         predicted, measured and published, as bars
    draw_breakdown(at)          one stacked bar: where the bytes are
    draw_stack(parts)           the same of any amounts that have names
    draw_stacks(rows)           several such bars of the same parts, such as one for each layer
    draw_curves(curves)         amounts of memory over a quantity, such as a sequence's length
    draw_durations(groups)      durations side by side, such as arithmetic and copies
    draw_lanes(lanes)           who did what and when, and below it what was held
    draw_steps(steps, rates)    the same of steps whose events were recorded, in time
    draw_journey(stops)         the running model's step, as each lesson left it
    draw_your_script(runs)      the same of a learner's own script
    draw_float_formats(number)  what each bit of a float format is for, and the bits of a number

and pictures of ideas, drawn from what runs:

    draw_autograd(graph)        the graph that backward walks, and what each op saves for it
    draw_layer(saved)           a transformer layer, and what it saves for backward where
    draw_methods(methods)       a map: memory, time, bytes sent, and what breaks

Each returns a `Picture`, which is a matplotlib Figure with alternative text; each has a
`describe_...` that gives the same text without drawing.
"""

from vramlab_course.plots.autograd import describe_autograd, draw_autograd
from vramlab_course.plots.breakdown import describe_breakdown, draw_breakdown
from vramlab_course.plots.curves import describe_curves, draw_curves
from vramlab_course.plots.durations import describe_durations, draw_durations
from vramlab_course.plots.float_formats import describe_float_formats, draw_float_formats
from vramlab_course.plots.journey import describe_journey, draw_journey
from vramlab_course.plots.lanes import Lanes, Span, Target, describe_lanes, draw_lanes
from vramlab_course.plots.methods import MethodCost, describe_methods, draw_methods
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.segments import describe_segments, draw_segments
from vramlab_course.plots.stack import describe_stack, draw_stack
from vramlab_course.plots.stacks import describe_stacks, draw_stacks
from vramlab_course.plots.stages import describe_stages, draw_stages
from vramlab_course.plots.steps import draw_steps
from vramlab_course.plots.timeline import describe_timeline, draw_timeline, largest_born
from vramlab_course.plots.transformer_layer import describe_layer, draw_layer
from vramlab_course.plots.your_script import describe_your_script, draw_your_script

__all__ = [
    "Lanes",
    "MethodCost",
    "Picture",
    "Span",
    "Target",
    "describe_autograd",
    "describe_breakdown",
    "describe_curves",
    "describe_durations",
    "describe_float_formats",
    "describe_journey",
    "describe_lanes",
    "describe_layer",
    "describe_methods",
    "describe_segments",
    "describe_stack",
    "describe_stacks",
    "describe_stages",
    "describe_timeline",
    "describe_your_script",
    "draw_autograd",
    "draw_breakdown",
    "draw_curves",
    "draw_durations",
    "draw_float_formats",
    "draw_journey",
    "draw_lanes",
    "draw_layer",
    "draw_methods",
    "draw_segments",
    "draw_stack",
    "draw_stacks",
    "draw_stages",
    "draw_steps",
    "draw_timeline",
    "draw_your_script",
    "largest_born",
]
