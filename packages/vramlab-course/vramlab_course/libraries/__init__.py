"""What real libraries take beside the course's own programs: measured once, shown in the lessons.

The libraries are not dependencies of the course, and their kernels need PyTorch's CUDA build. So
lessons show `measured.json`, which a machine with the native engine and the libraries writes:

    pip install bitsandbytes torchao peft liger-kernel deepspeed accelerate triton
    PYTHONOPTIMIZE=1 vramlab native run --gpu A100-80GB -m vramlab_course.libraries 16 17
    vramlab native run --gpu H100 -m vramlab_course.libraries 28
    python -m vramlab_course.libraries 04 10 11 12 19

PYTHONOPTIMIZE turns off Liger's assertions, which read values that no engine computes. Lesson 28
needs a GPU with float8 products. Lesson 04 looks at no GPU (`pip install torchinfo torchstat thop
fvcore pandas`), and 10 to 12 need none of the native engine's kernels. Lesson 19 runs on the
portable engine: on the native one, DDP's
first buckets stay alive beside the rebuilt ones when a rank is simulated alone.
"""

from vramlab_course.libraries.results import LibraryRow, library_table

__all__ = ["LibraryRow", "library_table"]
