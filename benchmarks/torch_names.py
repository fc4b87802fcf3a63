"""What the running PyTorch has: names that vramlab needs, ops, and functions under torch.cuda.

    python -m benchmarks.torch_on_stubs 2.15.0 -m benchmarks.torch_names NAMES.json

`new_torch` compares what two versions have.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.parts.coverage_tables import c_functions, public_names
from vramlab.gpu import self_check, torch_internals
from vramlab.gpu.torch_internals import Found
from vramlab.kernels import classify


def names() -> dict[str, Any]:
    """Look everything up in this process."""
    not_there = torch_internals.missing(everywhere=True)
    if torch.version.cuda is not None:
        expected = filter(torch_internals.is_expected, torch_internals.internals())
        of_cuda = (each for each in expected if each.found is Found.IN_CUDA_BUILDS)
        not_there += [each for each in of_cuda if not each.is_there()]
    schemas = {
        f"{schema.name}.{schema.overload_name or 'default'}": str(schema)
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
    }
    return {
        "missing": {each.path: each.purpose for each in not_there},
        "changed": sorted(map(str, self_check.changed(everywhere=True))),
        "ops": schemas,
        "unreviewed": sorted(name for name in schemas if _is_unreviewed(name)),
        "c functions": sorted(c_functions()),
        "public names": sorted(public_names()),
    }


def _is_unreviewed(name: str) -> bool:
    """Return whether the CUDA kernel of an op that Python can call has not been read yet."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    op = getattr(getattr(torch.ops.aten, packet, None), overload, None)
    return isinstance(op, torch_internals.OpOverload) and classify(op).name == "UNREVIEWED"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(names(), indent=1), encoding="utf-8")
