"""Measurements of GPU memory through torch's own interface, on a real GPU or a virtual one.

    stages.Stages               run named stages; what each does to allocated, reserved, peak bytes
    results.Result              what was measured: data, JSON, and a table beside what was expected
    recording.record_timeline   every block over time, from torch's memory history
    autograd_graph.autograd_graph  what each op of a graph saves for backward
    categories.breakdown        where the bytes are: parameters, gradients, activations...
    device.read_device          who has the GPU's memory, nvidia-smi's view and torch's together
    gpu_environment             the facts of GPU and PyTorch that predictions depend on
    allocations_table           every allocation, what it is, where it begins and ends
    code_lines.code_lines       which lines of the program hold the most
    holders.holders             the way from a name of the program to a block that is held
    transfers.record_transfers  every copy between host and GPU, in bytes
    record_collectives          what ranks reduce, gather and broadcast, in bytes
    record_links                copies from GPU to GPU, in bytes by link
    record_sends                what a rank sends to others one by one, in bytes
    record_operators            which of ATen's operators are called, and what each takes
    least_time                  what recorded operators need at least on a GPU
    record_events               what a step does in order, on which stream, and who waits for it
    put_in_time                 the same in time, by FLOPs and bytes over assumed rates
    saved_tensors.saved_by      what autograd keeps for backward, op by op

Only `read_device` needs more than torch: nvidia-ml-py.
"""

from vramlab.categories import Category
from vramlab.measure.autograd_graph import AutogradGraph, GraphOp, SavedPart, autograd_graph
from vramlab.measure.categories import (
    Attribution,
    Breakdown,
    attribute,
    breakdown,
    category_curves,
)
from vramlab.measure.code_lines import CodeLine, code_lines, code_lines_table
from vramlab.measure.collectives import Collective, Collectives, record_collectives
from vramlab.measure.counters import MemoryReading, read_memory, reset_peaks
from vramlab.measure.device import DeviceReading, device_table, read_device
from vramlab.measure.figures import Expectation, Published, Quantity
from vramlab.measure.history.allocations import allocations_table
from vramlab.measure.history.rebuild import IncompleteTraceError, timeline_from_snapshots
from vramlab.measure.history.recording import Recording, record_timeline
from vramlab.measure.holders import Holder, holders
from vramlab.measure.least_times import LeastTime, least_time
from vramlab.measure.operator_calls import OperatorCall, OperatorCalls, record_operators
from vramlab.measure.p2p_copies import Links, record_links
from vramlab.measure.p2p_sends import Sends, record_sends
from vramlab.measure.results import Result, StageMeasurement
from vramlab.measure.saved_tensors import (
    SavedTensor,
    SavedTensors,
    Whose,
    record_saved_tensors,
    saved_by,
)
from vramlab.measure.stages import Stages
from vramlab.measure.step_events import StepEvent, StepWork, record_events
from vramlab.measure.step_times import Rates, TimedRank, put_in_time
from vramlab.measure.timeline import (
    BlockLife,
    Frame,
    OutOfMemoryEvent,
    Sighting,
    Timeline,
    TimelineMoment,
    TimelineStage,
)
from vramlab.measure.transfers import Transfer, Transfers, record_transfers
from vramlab.table import Table

__all__ = [
    "Attribution",
    "AutogradGraph",
    "BlockLife",
    "Breakdown",
    "Category",
    "CodeLine",
    "Collective",
    "Collectives",
    "DeviceReading",
    "Expectation",
    "Frame",
    "GraphOp",
    "Holder",
    "IncompleteTraceError",
    "LeastTime",
    "Links",
    "MemoryReading",
    "OperatorCall",
    "OperatorCalls",
    "OutOfMemoryEvent",
    "Published",
    "Quantity",
    "Rates",
    "Recording",
    "Result",
    "SavedPart",
    "SavedTensor",
    "SavedTensors",
    "Sends",
    "Sighting",
    "StageMeasurement",
    "Stages",
    "StepEvent",
    "StepWork",
    "Table",
    "TimedRank",
    "Timeline",
    "TimelineMoment",
    "TimelineStage",
    "Transfer",
    "Transfers",
    "Whose",
    "allocations_table",
    "attribute",
    "autograd_graph",
    "breakdown",
    "category_curves",
    "code_lines",
    "code_lines_table",
    "device_table",
    "holders",
    "least_time",
    "put_in_time",
    "read_device",
    "read_memory",
    "record_collectives",
    "record_events",
    "record_links",
    "record_operators",
    "record_saved_tensors",
    "record_sends",
    "record_timeline",
    "record_transfers",
    "reset_peaks",
    "saved_by",
    "timeline_from_snapshots",
]
