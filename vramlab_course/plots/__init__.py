"""Pictures of where GPU memory is, drawn from results, snapshots and timelines. Measures nothing.

    draw_segments(snapshot)     the allocator's segments and blocks, to scale
    draw_timeline(timeline)     allocated bytes over time by category, with stages and peak
    draw_stages(result)         predicted, measured and published, as bars
    draw_breakdown(at)          one stacked bar: where the bytes are
    draw_stack(parts)           the same of any amounts that have names
    draw_stacks(rows)           several such bars of the same parts, such as one for each layer
    draw_curves(curves)         amounts of memory over a quantity, such as a sequence's length
    draw_device(readings)       who has the GPU's memory: driver, contexts, tensors, cache
    draw_durations(groups)      durations side by side, such as arithmetic and copies
    draw_roofline(gpu, work)    what a GPU reaches at best, over FLOPs per byte
    draw_trades(trades)         ways to train, by their memory and their time
    draw_plan(report)           one GPU of a training plan, estimated and simulated
    draw_plans(plans)           one GPU of each of several plans, estimated
    draw_gantt(plan)            who works when in a pipeline, and who waits
    draw_schedule(simulation)   which state of a chain a checkpointing schedule holds when
    draw_exchange(points)       what checkpointing strategies save and cost
    draw_shards(held)           which GPU holds which parameters when
    draw_holders(ways)          who holds a block: the way from a name to the tensor in it
    draw_journey(stops)         the running model's step, as each lesson left it
    draw_float_formats(number)  what each bit of a float format is for, and the bits of a number

and pictures of ideas, drawn from what runs:

    draw_autograd(graph)        the graph that backward walks, and what each op saves for it
    draw_hierarchy(snapshot)    driver, segments, blocks, tensors
    draw_states(weight, states) what optimizers keep for one weight, areas as large as bytes
    draw_adapters(weight, ...)  LoRA: what learns, and what it takes besides
    draw_pages(tokens)          a cache of keys and values that grows page by page
    draw_page_tables(tables)    in which pages the text of each request lies, and what is shared
    draw_turns(ways, places)    requests in a server's batch: who writes when
    draw_routing(chosen)        which tokens go to which experts
    draw_kept_heads(...)        what attention keeps: all heads, groups, one, or a latent
    draw_tiles(length, tile)    flash attention: which scores are there at a time
    draw_accumulation(...)      activations come and go, gradients stay
    draw_travel(places, trips)  what lies on GPU, host and disk, and what travels
    draw_star_and_ring(bytes)   gradients through one GPU, or around a ring
    draw_ring_turns(turns, ...) whose keys and values each rank has at which turn
    draw_overlap(gradients)     DDP's buckets fill and travel while backward runs
    draw_zero_stages(whole)     who holds and sends what, from DDP to ZeRO-3
    draw_cut_matrices(...)      tensor parallelism: two matrices cut, two all-reduces
    draw_reach(tensors)         which powers of two numbers have, and which a format reaches
    draw_scales(rows, columns)  which numbers share a scale with a large one
    draw_eight_bit_linear(...)  three products in 8 bits, and what is cast for each
    draw_fused(ops, size)       a chain of ops as kernels of their own, and as one
    draw_methods(methods)       a map: memory, time, bytes sent, and what breaks

Each returns a `Picture`, which is a matplotlib Figure with alternative text; each has a
`describe_...` that gives the same text without drawing.
"""

from vramlab_course.plots.accumulation import describe_accumulation, draw_accumulation
from vramlab_course.plots.adapters import describe_adapters, draw_adapters
from vramlab_course.plots.autograd import describe_autograd, draw_autograd
from vramlab_course.plots.breakdown import describe_breakdown, draw_breakdown
from vramlab_course.plots.curves import describe_curves, draw_curves
from vramlab_course.plots.cut_matrices import describe_cut_matrices, draw_cut_matrices
from vramlab_course.plots.device import describe_device, draw_device
from vramlab_course.plots.durations import describe_durations, draw_durations
from vramlab_course.plots.eight_bit_linear import describe_eight_bit_linear, draw_eight_bit_linear
from vramlab_course.plots.float_formats import describe_float_formats, draw_float_formats
from vramlab_course.plots.fused import describe_fused, draw_fused
from vramlab_course.plots.gantt import describe_gantt, draw_gantt
from vramlab_course.plots.hierarchy import describe_hierarchy, draw_hierarchy
from vramlab_course.plots.holders import describe_holders, draw_holders
from vramlab_course.plots.journey import describe_journey, draw_journey
from vramlab_course.plots.kept_heads import describe_kept_heads, draw_kept_heads
from vramlab_course.plots.methods import MethodCost, describe_methods, draw_methods
from vramlab_course.plots.overlap import describe_overlap, draw_overlap
from vramlab_course.plots.page_tables import describe_page_tables, draw_page_tables
from vramlab_course.plots.pages import describe_pages, draw_pages
from vramlab_course.plots.picture import Picture
from vramlab_course.plots.plans import describe_plan, draw_plan, draw_plans
from vramlab_course.plots.reach import describe_reach, draw_reach
from vramlab_course.plots.ring_turns import describe_ring_turns, draw_ring_turns
from vramlab_course.plots.roofline import describe_roofline, draw_roofline
from vramlab_course.plots.routing import describe_routing, draw_routing
from vramlab_course.plots.scales import describe_scales, draw_scales
from vramlab_course.plots.schedules import (
    describe_exchange,
    describe_schedule,
    draw_exchange,
    draw_schedule,
)
from vramlab_course.plots.segments import describe_segments, draw_segments
from vramlab_course.plots.shards import describe_shards, draw_shards
from vramlab_course.plots.stack import describe_stack, draw_stack
from vramlab_course.plots.stacks import describe_stacks, draw_stacks
from vramlab_course.plots.stages import describe_stages, draw_stages
from vramlab_course.plots.star_and_ring import describe_star_and_ring, draw_star_and_ring
from vramlab_course.plots.states import describe_states, draw_states
from vramlab_course.plots.tiles import describe_tiles, draw_tiles
from vramlab_course.plots.timeline import describe_timeline, draw_timeline, largest_born
from vramlab_course.plots.trades import Trade, describe_trades, draw_trades
from vramlab_course.plots.travel import Trip, describe_travel, draw_travel
from vramlab_course.plots.turns import describe_turns, draw_turns
from vramlab_course.plots.zero_stages import describe_zero_stages, draw_zero_stages

__all__ = [
    "MethodCost",
    "Picture",
    "Trade",
    "Trip",
    "describe_accumulation",
    "describe_adapters",
    "describe_autograd",
    "describe_breakdown",
    "describe_curves",
    "describe_cut_matrices",
    "describe_device",
    "describe_durations",
    "describe_eight_bit_linear",
    "describe_exchange",
    "describe_float_formats",
    "describe_fused",
    "describe_gantt",
    "describe_hierarchy",
    "describe_holders",
    "describe_journey",
    "describe_kept_heads",
    "describe_methods",
    "describe_overlap",
    "describe_page_tables",
    "describe_pages",
    "describe_plan",
    "describe_reach",
    "describe_ring_turns",
    "describe_roofline",
    "describe_routing",
    "describe_scales",
    "describe_schedule",
    "describe_segments",
    "describe_shards",
    "describe_stack",
    "describe_stacks",
    "describe_stages",
    "describe_star_and_ring",
    "describe_states",
    "describe_tiles",
    "describe_timeline",
    "describe_trades",
    "describe_travel",
    "describe_turns",
    "describe_zero_stages",
    "draw_accumulation",
    "draw_adapters",
    "draw_autograd",
    "draw_breakdown",
    "draw_curves",
    "draw_cut_matrices",
    "draw_device",
    "draw_durations",
    "draw_eight_bit_linear",
    "draw_exchange",
    "draw_float_formats",
    "draw_fused",
    "draw_gantt",
    "draw_hierarchy",
    "draw_holders",
    "draw_journey",
    "draw_kept_heads",
    "draw_methods",
    "draw_overlap",
    "draw_page_tables",
    "draw_pages",
    "draw_plan",
    "draw_plans",
    "draw_reach",
    "draw_ring_turns",
    "draw_roofline",
    "draw_routing",
    "draw_scales",
    "draw_schedule",
    "draw_segments",
    "draw_shards",
    "draw_stack",
    "draw_stacks",
    "draw_stages",
    "draw_star_and_ring",
    "draw_states",
    "draw_tiles",
    "draw_timeline",
    "draw_trades",
    "draw_travel",
    "draw_turns",
    "draw_zero_stages",
    "largest_born",
]
