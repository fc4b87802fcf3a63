"""The workspaces of CUBLAS and CUBLASLT, the steps of a rule, where an op runs."""

from __future__ import annotations

from vramlab.cuda_rules import cublas
from vramlab.cuda_rules.cublas import Library, Workspace
from vramlab.kernels.registry import CUBLAS, CUBLASLT, Launch, Marker

__all__ = ["Workspace", "workspaces"]

_LIBRARIES: dict[Marker, Library] = {CUBLAS: "cublas", CUBLASLT: "cublaslt"}


def workspaces(library: Marker, launch: Launch) -> tuple[Workspace, ...]:
    """List the workspaces that a call of `library` needs, in the order in which it looks them up.

    Args:
        library: CUBLAS or CUBLASLT.
        launch: where the call runs.

    Raises:
        ValueError: another step.
    """
    if library not in _LIBRARIES:
        raise ValueError(f"{library} is not a library with a workspace: give CUBLAS or CUBLASLT")
    return cublas.workspaces(
        _LIBRARIES[library],
        launch.model.compute_capability,
        launch.torch_version,
        launch.environment,
        launch.cublas_workspace_bytes,
        launch.cublaslt_workspace_bytes,
    )
