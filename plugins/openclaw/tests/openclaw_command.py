"""`hermes-memory claw` as its tests run it, and what they look at afterwards."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from hermes_core import HermesHome, open_memory
from hermes_core.cli import main


def claw(*arguments: object, answer: str = "") -> Result:
    return CliRunner().invoke(main, ["claw", *map(str, arguments)], input=answer)


def migrate(*arguments: object, code: int = 0) -> dict[str, Any]:
    """Do it, and give the report."""
    done = claw("migrate", "--yes", "--json", *arguments)
    assert done.exit_code == code, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def item(report: dict[str, Any], kind: str, text: str = "") -> dict[str, Any]:
    found = [one for one in report["items"] if one["kind"] == kind and text in one["source"]]
    assert len(found) == 1, (kind, found)
    return dict(found[0])


def entries(home: HermesHome, target: Any = "memory") -> tuple[str, ...]:
    with open_memory(home) as memory:
        return memory.curated.entries(target)
