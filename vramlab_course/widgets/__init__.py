"""Explore GPU memory with ipywidgets in a notebook, and predict it before it is measured.

    predict(question)           commit to a number or a range before it is shown
    prediction_score()          what you predicted so far, and the points for it
    start_page()                the course, what you have done of it, and what comes next
    show_timeline(timeline)     memory over time: hover a block for its tensor, line and lifetime
    context_explorer()          how many processes share a GPU
    allocator_explorer()        what the caching allocator makes of allocations and frees
    parameters_explorer()       what layers take by existing, and what training adds
    saved_tensors_explorer()    what a chain of operators keeps for its backward pass
    training_step_explorer()    how batch, width and optimizer shape a training step's memory
    kv_cache_explorer()         what a cache of keys and values takes, and what fits
    serving_explorer()          how many requests fit beside a model's weights
    optimizer_explorer()        what an optimizer keeps, and what its step() takes
    offloading_explorer()       what the host keeps for the GPU, and what its trips cost
    pipeline_explorer()         who works when in a pipeline, and what each stage holds
    methods_explorer()          methods that trade memory against time, combined
    accumulation_explorer()     a batch in micro-batches: its peak, and its gradient
    batch_explorer()            which batch fits a GPU: by a line, and by trying
    bert_explorer()             what a training step of BERT holds, part by part
    attention_explorer()        what attention takes over the length of a text
    transformer_explorer()      where the bytes of a transformer go, by formula and measured
    checkpointing_explorer()    plays a checkpointing schedule: what is held when
    lean_optimizer_explorer()   what optimizers keep and take, by the shapes of parameters
    data_parallel_explorer()    who holds what when GPUs share the work
    zero_explorer()             what each GPU keeps at each stage of ZeRO, and from how many it fits
    tensor_parallel_explorer()  what each rank holds and sends when a layer is cut
    planner_explorer()          which plan fits a transformer's training on given GPUs
    adapter_explorer()          what LoRA and QLoRA leave of a step's memory
    long_context_explorer()     what a long text takes, on one GPU or shared among ranks
    float_explorer()            how a number is stored in each floating point format
    moe_explorer()              what each rank holds of a layer of experts, crowd or none
    mixed_precision_explorer()  a training step in less precision
    leak_explorer()             lines that keep something, and what memory does step by step
    compiled_explorer()         what a piece keeps for backward, eager and compiled
    eight_bits_explorer()       a training step with products in 8 bits
    Explorer, View              the base of further ones: see `vramlab_course.widgets.explorer`

What explorers measure, they measure on virtual GPUs of their own: whatever is attached in the
notebook is left alone. Importing this package in a notebook lets cells that run for long say what
they are at (`running_cell`), and tables, timelines and verdicts the language of the learner's
folder (`spoken_frames`).
"""

from vramlab_course.widgets.accumulation_explorer import accumulation_explorer
from vramlab_course.widgets.adapter_explorer import adapter_explorer
from vramlab_course.widgets.allocator_explorer import allocator_explorer
from vramlab_course.widgets.attention_explorer import attention_explorer
from vramlab_course.widgets.batch_explorer import batch_explorer
from vramlab_course.widgets.bert_explorer import bert_explorer
from vramlab_course.widgets.checkpointing_explorer import checkpointing_explorer
from vramlab_course.widgets.compiled_explorer import compiled_explorer
from vramlab_course.widgets.context_explorer import context_explorer
from vramlab_course.widgets.course_progress import start_page
from vramlab_course.widgets.data_parallel_explorer import data_parallel_explorer
from vramlab_course.widgets.eight_bits_explorer import eight_bits_explorer
from vramlab_course.widgets.explorer import Explorer, View
from vramlab_course.widgets.float_explorer import float_explorer
from vramlab_course.widgets.kv_cache_explorer import kv_cache_explorer
from vramlab_course.widgets.leak_explorer import leak_explorer
from vramlab_course.widgets.lean_optimizer_explorer import lean_optimizer_explorer
from vramlab_course.widgets.long_context_explorer import long_context_explorer
from vramlab_course.widgets.methods_explorer import methods_explorer
from vramlab_course.widgets.mixed_precision_explorer import mixed_precision_explorer
from vramlab_course.widgets.moe_explorer import moe_explorer
from vramlab_course.widgets.offloading_explorer import offloading_explorer
from vramlab_course.widgets.optimizer_explorer import optimizer_explorer
from vramlab_course.widgets.parameters_explorer import parameters_explorer
from vramlab_course.widgets.pipeline_explorer import pipeline_explorer
from vramlab_course.widgets.planner_explorer import planner_explorer
from vramlab_course.widgets.predict import Answer, Prediction, predict
from vramlab_course.widgets.prediction_record import prediction_score
from vramlab_course.widgets.running_cell import say_what_long_cells_do
from vramlab_course.widgets.saved_tensors_explorer import saved_tensors_explorer
from vramlab_course.widgets.serving_explorer import serving_explorer
from vramlab_course.widgets.spoken_frames import speak_to_the_reader
from vramlab_course.widgets.tensor_parallel_explorer import tensor_parallel_explorer
from vramlab_course.widgets.timeline import show_timeline
from vramlab_course.widgets.training_step_explorer import training_step_explorer
from vramlab_course.widgets.transformer_explorer import transformer_explorer
from vramlab_course.widgets.zero_explorer import zero_explorer

__all__ = [
    "Answer",
    "Explorer",
    "Prediction",
    "View",
    "accumulation_explorer",
    "adapter_explorer",
    "allocator_explorer",
    "attention_explorer",
    "batch_explorer",
    "bert_explorer",
    "checkpointing_explorer",
    "compiled_explorer",
    "context_explorer",
    "data_parallel_explorer",
    "eight_bits_explorer",
    "float_explorer",
    "kv_cache_explorer",
    "leak_explorer",
    "lean_optimizer_explorer",
    "long_context_explorer",
    "methods_explorer",
    "mixed_precision_explorer",
    "moe_explorer",
    "offloading_explorer",
    "optimizer_explorer",
    "parameters_explorer",
    "pipeline_explorer",
    "planner_explorer",
    "predict",
    "prediction_score",
    "saved_tensors_explorer",
    "serving_explorer",
    "show_timeline",
    "start_page",
    "tensor_parallel_explorer",
    "training_step_explorer",
    "transformer_explorer",
    "zero_explorer",
]

say_what_long_cells_do()
speak_to_the_reader()
