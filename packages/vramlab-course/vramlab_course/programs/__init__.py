"""Programs that several lessons run: models, optimizers, and the ranks of processes.

documents        the documents' models: VGG16, Linear layers
chains           chains of equal steps
unfilled         models whose weights are never read
each_parameter   the base of optimizers that update one parameter after the other
blockwise_adam   AdamW with states of one byte
ranks            programs of which torchrun starts a process for each GPU
"""

from vramlab_course.on_access import modules_of

__getattr__ = modules_of(__name__)
