"""The page of the checks that each adapter of an agent framework passes, out of the tests and packages."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTRACT = ROOT / "plugins/testing/hermes_memory_testing"
RANGE = re.compile(r"(?P<name>[\w.-]+)>=(?P<lowest>[\w.]+),<[\w.]+")


@dataclass(frozen=True)
class Adapter:
    """An adapter.

    Attributes:
        name: Name of its folder.
        framework: Distribution of the framework.
        lowest: Lowest version of the framework.
        newest: Newest version that was tested.
        why_lowest: Reason why no older version will do; "" if the lowest one is at least three months old.
        absent: Reasons why the framework has no such thing, by the method of `HostedAgent`.
    """

    name: str
    framework: str
    lowest: str
    newest: str
    why_lowest: str
    absent: dict[str, str]


def adapters_page() -> Iterator[str]:
    """Checks of `HostContract` by adapter, and the versions of the frameworks."""
    yield "# Checks by adapter\n"
    yield (
        "`HostContract` runs these checks on an agent of each framework with a scripted model. "
        "[Use it in an agent framework](../how-to/use-in-a-framework.md) says how to add an adapter.\n"
    )
    adapters = list(_adapters())
    yield f"| | {' | '.join(adapter.name for adapter in adapters)} |"
    yield f"|---|{'---|' * len(adapters)}"
    yield f"| framework | {' | '.join(f'`{adapter.framework}`' for adapter in adapters)} |"
    yield f"| lowest version | {' | '.join(adapter.lowest for adapter in adapters)} |"
    yield f"| newest version that was tested | {' | '.join(adapter.newest for adapter in adapters)} |"
    for check, methods in _checks():
        cells = ("absent" if methods & adapter.absent.keys() else "yes" for adapter in adapters)
        yield f"| {check} | {' | '.join(cells)} |"
    yield (
        "\n`make lowest` runs the checks on the lowest versions. They allow the releases of the last three months, but for:\n"
    )
    yield from (f"* {adapter.name}: {adapter.why_lowest}" for adapter in adapters if adapter.why_lowest)
    yield ""
    yield "## What a framework does not have\n"
    yield "| adapter | absent | why |\n|---|---|---|"
    for adapter in adapters:
        for method, reason in adapter.absent.items():
            yield f"| {adapter.name} | `{method}` | {reason} |"


@cache
def _checks() -> list[tuple[str, set[str]]]:
    """Return the title of each check, with the methods of `HostedAgent` that it requires."""
    checks = []
    for path in (CONTRACT / "hosting.py", *sorted(CONTRACT.glob("*_checks.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
                required = [
                    call.args[1]
                    for call in calls
                    if isinstance(call.func, ast.Name) and call.func.id == "require"
                ]
                methods = {str(each.value) for each in required if isinstance(each, ast.Constant)}
                checks.append((node.name.removeprefix("test_").replace("_", " "), methods))
    return checks


def _adapters() -> Iterator[Adapter]:
    for folder in sorted(path.parent for path in ROOT.glob("integrations/*/pyproject.toml")):
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        found = [RANGE.fullmatch(need) for need in project["project"]["dependencies"]]
        (match,) = [each for each in found if each and each["name"] != "hermes-memory-core"]
        absent: dict[str, str] = {}
        for node in ast.walk(ast.parse((folder / "tests/test_host.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "absent" and node.value:
                absent |= ast.literal_eval(node.value)
        tested = project["tool"]["hermes"]
        newest, why_lowest = tested["newest"], tested.get("why_lowest", "")
        yield Adapter(folder.name, match["name"], match["lowest"], newest, why_lowest, absent)


PAGES = {"reference/adapters.md": adapters_page}
