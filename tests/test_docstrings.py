"""The docstring of a public function begins with a verb: what calling it does.

A property is read like an attribute, so that its docstring may be a noun.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import vramlab

ROOT = Path(vramlab.__file__).parents[1]

VERBS = """
Accept Accumulate Add Advance Allocate Allow Answer Append Apply Arm Arrange Ask Assign Attach
Attend Average Await Be Begin Bind Bring Build Cache Calculate Call Cancel Carry Cast Catch Change
Check Checkpoint Choose Cite Claim Clamp Classify Clean Clear Clone Close Collect Combine Commit
Compare Compile Complain Complete Compute Configure Confirm Connect Consume Continue Convert Copy
Correct Count Cover Create Cut Decide Declare Decode Delete Deliver Derive Describe Destroy Detach
Detect Digest Discard Dispatch Display Divide Do Download Draw Drop Dump Embed Empty Encode End
Ensure Enter Erase Escape Estimate Evaluate Exchange Execute Expand Expect Explain Export Extend
Extract Fail Fetch Fill Filter Find Finish Fit Flatten Flush Fold Follow Forget Fork Format Forward
Free Freeze Gather Generate Get Give Go Grade Group Guard Guess Handle Have Hear Hide Highlight Hold
Ignore Import Include Index Infer Inform Insert Inspect Install Interpret Interrupt Invert Issue
Join Judge Keep Kill Label Launch Lay Leave Let Limit Link List Listen Load Locate Lock Log Look
Lower Make Map Mark Match Measure Merge Mix Model Move Multiply Name Note Notify Number Offer Open
Order Override Overwrite Pack Parse Pass Patch Pick Pin Place Plan Play Pop Post Predict Prepare
Print Process Produce Project Prove Provide Publish Push Put Query Quote Raise Reach Read Rebuild
Recompute Record Recover Reduce Refuse Register Reject Release Reload Remember Remove Rename Render
Repeat Replace Report Request Require Reserve Reset Resize Resolve Restore Resume Retain Return
Reuse Reverse Rewrite Rise Round Run Sample Save Say Scale Scatter Score Search See Select Send
Separate Serve Set Share Shift Shorten Show Shrink Simulate Size Skip Sleep Slice Sort Spawn Spell
Split Stand Start Step Stop Store Strip Submit Substitute Subtract Sum Summarize Suppress Suspend
Swap Switch Synchronize Tabulate Take Tell Test Trace Track Train Transfer Transform Translate Trim
Try Turn Undo Unpack Unscale Unwrap Update Use Validate Verify View Visit Wait Wake Walk Warn Watch
Weight Widen Word Work Wrap Write Yield
"""
"""With which docstrings may begin. One that is missing is put in its place here."""


def first_words() -> Iterator[tuple[str, str]]:
    """Give where each docstring of a public function or method is, and its first word."""
    for package in ("vramlab", "vramlab_course", "vramlab_classroom"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for function in functions(ast.parse(path.read_text())):
                docstring = ast.get_docstring(function)
                if docstring:
                    where = f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
                    yield where, docstring.split()[0].rstrip(",;:")


def functions(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Find the public functions of a module, and the methods of its public classes."""
    for each in node.body:
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
            yield from functions(each)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            is_property = any("property" in ast.unparse(by) for by in each.decorator_list)
            if not each.name.startswith("_") and not is_property:
                yield each


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    verbs = VERBS.split()
    found = list(first_words())
    assert len(found) > 2000
    assert [f"{where}: {word}" for where, word in found if word not in verbs] == []
