"""What the skill for coding agents says of the JSON and of the command line is so."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import vramlab
from vramlab import cli
from vramlab.explaining.explanation import GPUExplanation
from vramlab.explaining.remedies import Remedy
from vramlab.explaining.whatif import Outcome

SKILL = (Path(vramlab.__file__).parent / "SKILL.md").read_text(encoding="utf-8")


def test_every_key_is_in_the_json() -> None:
    table = SKILL[SKILL.index("| key |") : SKILL.index("## 3")]
    named = set(re.findall(r"`(\w+)`", table))
    kinds = (GPUExplanation, Outcome, Remedy)
    known = {field.name for kind in kinds for field in fields(kind)}
    assert named - known == set()


@pytest.mark.parametrize("verb", ["explain", "run", "diff", "gpus"])
def test_every_option_is_one(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([verb, "--help"])
    told = capsys.readouterr().out
    for line in re.findall(rf"vramlab {verb} (.*?)(?:`|$)", SKILL, re.MULTILINE):
        own = line.partition("train.py")[0]
        assert [option for option in re.findall(r"--[a-z-]+", own) if option not in told] == []
