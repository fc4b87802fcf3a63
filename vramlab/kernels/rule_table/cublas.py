"""The workspaces of CUBLAS and CUBLASLT, the steps of a rule, where an op runs."""

from __future__ import annotations

from vramlab.cuda_rules import cublas
from vramlab.cuda_rules.cublas import Library, Workspace
from vramlab.kernels.rule_table.registry import CUBLAS, CUBLASLT, KernelContext, Marker

__all__ = ["Workspace", "workspaces"]

_LIBRARIES: dict[Marker, Library] = {CUBLAS: "cublas", CUBLASLT: "cublaslt"}


def workspaces(library: Marker, context: KernelContext) -> tuple[Workspace, ...]:
    """List the workspaces that a call of `library` needs, in the order in which it looks them up.

    Args:
        library: CUBLAS or CUBLASLT.
        context: where the call runs.

    Raises:
        ValueError: another step.
    """
    if library not in _LIBRARIES:
        raise ValueError(f"{library} is not a library with a workspace: give CUBLAS or CUBLASLT")
    return cublas.workspaces(
        _LIBRARIES[library],
        context.model.compute_capability,
        context.torch_version,
        context.environment,
        context.cublas_workspace_bytes,
        context.cublaslt_workspace_bytes,
    )
