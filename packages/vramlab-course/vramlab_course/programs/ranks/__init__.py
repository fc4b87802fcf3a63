"""Programs of which torchrun starts one process for each GPU, as at work.

    torchrun         start such a program, and get what each of its processes reports
    join             in the program: become one rank of the world that torchrun started
    alone            be one rank of a world, without the others

The programs themselves are `ranks` in the rooms of lessons 19 to 22 and 26.

With enough real GPUs the processes use them, and NCCL. Else each has virtual GPUs with values, and
gloo moves real numbers between them.
"""

from vramlab.programs.alone import alone, refuse_real_gpu
from vramlab_course.programs.ranks.join import Rank, join
from vramlab_course.programs.ranks.launch import torchrun

__all__ = ["Rank", "alone", "join", "refuse_real_gpu", "torchrun"]
