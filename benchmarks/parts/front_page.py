"""What the front page (README.md) shows of one training run: a program, a picture, a report.

The run is that of docs/examples/train_gpt2.py: GPT-2 medium, two steps of 8 x 1024 tokens, on a
virtual A100-40GB. The picture is drawn from a recording of it.
tests/test_readme.py runs the program and compares the three.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from io import BytesIO

import numpy as np
import torch
from matplotlib.image import imread
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

import vramlab
from benchmarks.estimates.results import ROOT
from vramlab.measure import Timeline, breakdown, record_timeline
from vramlab.units import GIB
from vramlab_course.plots import draw_timeline
from vramlab_course.plots.picture import Picture

GPU = "A100-40GB"
BATCH = 8
PICTURE = ROOT / "assets" / "training-gpt2-medium.png"
SCRIPT = "docs/examples/train_gpt2.py"
PROGRAM = """\
This training takes {needed_gb:.0f} GB of GPU memory, measured in seconds without a GPU:

```python
import torch
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

import vramlab

with vramlab.VirtualGPU("{gpu}"), torch.device("cuda"):
    model = GPT2LMHeadModel(GPT2Config(n_layer=24, n_embd=1024, n_head=16))  # GPT-2 medium
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(2):
        tokens = torch.randint(50257, ({batch}, 1024))
        logits = model(tokens[:, :-1]).logits
        loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(torch.cuda.max_memory_allocated())  # {allocated_bytes}
```

With PyTorch's cache and the CUDA context, the GPU needs {needed_bytes:,} B in all."""

TITLE = "Two training steps of GPT-2 medium, measured without a GPU"

_LINES = 7
"""How much the page shows of the lines that hold most: a heading, and two or three of them."""

_MOST_DIFFERENT = 0.002
"""Of a pixel's range, on average: systems render letters a little differently."""


@cache
def timeline() -> Timeline:
    """Every allocation of the run, with its stages."""
    with vramlab.VirtualGPU(GPU), torch.device("cuda"), record_timeline() as recording:
        recording.stage("model")
        config = GPT2Config(n_layer=24, n_embd=1024, n_head=16)
        model = GPT2LMHeadModel(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        recording.watch(model, optimizer)
        for step in (1, 2):
            recording.stage(f"forward {step}")
            tokens = torch.randint(config.vocab_size, (BATCH, config.n_positions))
            recording.watch(inputs=tokens)
            logits = model(tokens[:, :-1]).logits
            loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            recording.stage(f"backward {step}")
            loss.backward()
            recording.stage(f"AdamW {step}")
            optimizer.step()
            optimizer.zero_grad()
    return recording.timeline


def program() -> str:
    """Return a program that a reader can run, with what it prints and what it needs."""
    model = vramlab.VirtualGPU(GPU).model
    needed_bytes = max(timeline().reserved_bytes) + model.context_bytes
    return PROGRAM.format(
        gpu=GPU,
        batch=BATCH,
        allocated_bytes=timeline().peak_bytes,
        needed_bytes=needed_bytes,
        needed_gb=needed_bytes / 1e9,
    )


@cache
def picture() -> Picture:
    """Return the run over time, drawn."""
    return draw_timeline(timeline(), title=TITLE, capacity_bytes=_capacity_bytes())


def _capacity_bytes() -> int:
    return vramlab.VirtualGPU(GPU).model.total_bytes


def picture_is_current() -> bool:
    """Whether the file shows what would be drawn now."""
    if not PICTURE.exists():
        return False
    there, now = imread(PICTURE), imread(BytesIO(picture().to_png()))
    return there.shape == now.shape and float(np.abs(there - now).mean()) < _MOST_DIFFERENT


def write_picture() -> None:
    """Draw the picture into its file, if it is not there already."""
    if not picture_is_current():
        PICTURE.write_bytes(picture().to_png())


def image() -> str:
    """Return the picture as Markdown, with its alternative text in one sentence."""
    at_peak = breakdown(timeline())
    moment, sizes_bytes = at_peak.moment, at_peak.category_bytes
    largest = max(sizes_bytes, key=sizes_bytes.__getitem__)
    words = (
        f"{TITLE}: allocated memory over time by category, with a "
        f"peak at {moment.allocated_bytes / GIB:.3f} GiB in stage '{moment.stage}', "
        f"of which {sizes_bytes[largest] / GIB:.3f} GiB are {largest}."
    )
    return f"![{words}]({PICTURE.relative_to(ROOT).as_posix()})"


@cache
def report() -> str:
    """Return the beginning of the script's `vramlab run` report as a Markdown block."""
    command = ("run", "--gpu", GPU, SCRIPT)
    ran = subprocess.run(
        [sys.executable, "-m", "vramlab", *command], cwd=ROOT, capture_output=True, text=True
    )
    return f"```text\n{first_part(ran.stderr)}\n```"


def first_part(text: str) -> str:
    """Return the part of a report that never changes, with the first lines that allocated most."""
    _, report, text = text.partition("vramlab run: ")  # lines of progress come before it
    without_time = re.sub(r", \d+\.\d s$", "", f"{report}{text}".strip(), flags=re.MULTILINE)
    head, heading, lines = without_time.partition("Lines that allocated most")
    shown = "\n".join(lines.splitlines()[:_LINES])
    return f"{head}{heading}{shown}\n  ..."
