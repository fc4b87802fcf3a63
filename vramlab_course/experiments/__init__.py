"""The documents' experiments, as programs: run one, and see predicted, measured and published.

    import vramlab
    from vramlab import experiments
    vramlab.attach("A100-40GB")
    outcome = experiments.run("three-linear")
    outcome                                      # a table, in a notebook; print(outcome) elsewhere
    outcome["forward"].growth_bytes              # an int
    outcome.finding("three-linear-peak").verdict

An experiment measures through torch's own interface on whatever GPU is attached.
`run_as_published` attaches the virtual GPU, and stands for the PyTorch, that the documents had.
"""

from vramlab_course.experiments import (
    accumulation,
    activations,
    adapters,
    batch_size,
    bert,
    bert_modes,
    bytes_per_parameter,
    checkpoint_claims,
    checkpointing,
    cuda_context,
    data_parallel,
    eight_bits,
    fragmentation,
    inference,
    large_models,
    leaks,
    lean_optimizers,
    long_context,
    methods,
    mixed_precision,
    mlp_block,
    moe,
    offloading,
    operators,
    optimizer_states,
    padding,
    pages_and_blocks,
    parameters,
    pipeline,
    residual_network,
    retention,
    sequence_length,
    serving,
    tensor_parallel,
    training_step,
    zero,
)
from vramlab_course.experiments.outcome import Difference, FigureVerdict, Finding, Outcome
from vramlab_course.experiments.published import Figure, figure, figures
from vramlab_course.experiments.registry import (
    Conditions,
    Experiment,
    experiment,
    get,
    names,
    run,
    run_as_published,
)
from vramlab_course.experiments.trial import Trial, expected

__all__ = [
    "Conditions",
    "Difference",
    "Experiment",
    "Figure",
    "FigureVerdict",
    "Finding",
    "Outcome",
    "Trial",
    "accumulation",
    "activations",
    "adapters",
    "batch_size",
    "bert",
    "bert_modes",
    "bytes_per_parameter",
    "checkpoint_claims",
    "checkpointing",
    "cuda_context",
    "data_parallel",
    "eight_bits",
    "expected",
    "experiment",
    "figure",
    "figures",
    "fragmentation",
    "get",
    "inference",
    "large_models",
    "leaks",
    "lean_optimizers",
    "long_context",
    "methods",
    "mixed_precision",
    "mlp_block",
    "moe",
    "names",
    "offloading",
    "operators",
    "optimizer_states",
    "padding",
    "pages_and_blocks",
    "parameters",
    "pipeline",
    "residual_network",
    "retention",
    "run",
    "run_as_published",
    "sequence_length",
    "serving",
    "tensor_parallel",
    "training_step",
    "zero",
]
