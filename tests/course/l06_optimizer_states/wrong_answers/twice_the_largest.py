"""Document 003's rule, for several layers.

loses: step_extra_bytes
leaves: 2.5
says: You took the loop for twice the largest parameter.
"""


def step_extra_bytes(way, shapes):
    sizes = [parameter_bytes(shape) for shape in shapes]  # noqa: F821
    return {"loop": 2 * max(sizes), "foreach": sum(sizes), "fused": 0}[way]
