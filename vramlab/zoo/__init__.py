"""The zoo: models as people train and run them, to compare the virtual GPU with real ones.

    from vramlab import zoo
    for workload in zoo.WORKLOADS:
        print(workload.id)
    result = zoo.run(zoo.find("gpt2-b8-s1024-fp32-adamw-efficient"))

A workload is plain PyTorch on whatever GPU is attached, real or virtual. `table.py` lists which
combinations of model, sizes, precision, optimizer and attention are run.
"""

from vramlab.zoo.program import run
from vramlab.zoo.table import WORKLOADS, find
from vramlab.zoo.workload import Workload

__all__ = ["WORKLOADS", "Workload", "find", "run"]
