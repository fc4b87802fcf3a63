"""Run the programs of published measurements on virtual GPUs, and write measurements.json."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version

from benchmarks import neutral
from benchmarks.measurements.rows import RESULTS_FILE, SOURCES, Row, read_results, rows_of
from vramlab import VirtualGPU
from vramlab.progress import working


def found_bytes(row: Row) -> int:
    """Run a row's program on its GPU."""
    with VirtualGPU(row.gpu, on_value="nan", torch_version=row.rules):
        return row.run()[row.quantity]


def used_versions() -> str:
    """Name the packages whose code ran."""
    used = [
        name
        for name in ("torch", "transformers", "peft", "liger_kernel", "triton")
        if name in sys.modules
    ]
    return ", ".join(f"{name} {version(name).partition('+')[0]}" for name in used)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rows of some sources, and keep what was found of the others."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measurements")
    parser.add_argument("source", nargs="*", metavar="SOURCE", help=", ".join(SOURCES))
    parser.add_argument("--program", action="append", help="only this one; may be repeated")
    parser.add_argument("--mode", help="only rows with this mode, such as training")
    parser.add_argument("--gpu", help="only rows of this GPU, as the source has its name")
    parser.add_argument("--print", action="store_true", help="print rows, and write nothing")
    arguments = parser.parse_args(argv)
    results = read_results() if RESULTS_FILE.exists() else {}
    with neutral.environment(), working("running the programs") as step:
        for source in arguments.source or SOURCES:
            of_source = results.setdefault(source, {})
            for row in rows_of(source):
                if arguments.program and row.program not in arguments.program:
                    continue
                if arguments.mode and f"mode={arguments.mode} " not in row.arguments:
                    continue
                if arguments.gpu not in (None, row.gpu):
                    continue
                step.tell(row.name)
                found = found_bytes(row)
                of_source[row.name] = {"found_bytes": found, "with": used_versions()}
                if arguments.print:
                    print(row.name, row.published, f"{row.error(found):+.4%}", sep="\t", flush=True)
    if not arguments.print:
        RESULTS_FILE.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
