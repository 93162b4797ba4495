"""The contract of Hermes Agent by month, as data, and how the host modules here differ from it.

`contracts/` has a file for each month in which the contract changed: its names with their signatures and values, and what a
manifest may hold. A file names what is new or different; `based_on` names the month before it. A new month is a new file, and
`differences` then lists what the host modules lack.
"""

from __future__ import annotations

import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any

from hermes_memory_foreign.host_modules import VIEWS
from hermes_memory_foreign.manifest import CONTRACT_MONTH

_FOLDER = Path(__file__).with_name("contracts")

KNOWN_DIFFERENCES = {
    "agent.memory_manager.MemoryManager": "raises with the reason: hermes_core holds the providers itself",
    "agent.memory_manager.inject_memory_provider_tools": "raises with the reason, as MemoryManager does",
    "tools.memory_tool.MemoryStore": "raises with the reason: the notes are hermes_core's",
    "tools.memory_tool.memory_tool": "raises with the reason, as MemoryStore does",
}
"""Differences from the newest contract that stay, by name, each with its reason."""


def months() -> list[str]:
    """Return the months with a contract, the oldest first."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


@cache
def contract_of(month: str = CONTRACT_MONTH) -> dict[str, Any]:
    """Return the whole contract of a month: `names` with their forms, `groups`, `manifest`, `version`."""
    data: dict[str, Any] = json.loads((_FOLDER / f"{month}.json").read_text(encoding="utf-8"))
    before = (
        contract_of(data["based_on"]) if "based_on" in data else {"names": {}, "groups": [], "manifest": []}
    )
    names = {name: form for name, form in before["names"].items() if name not in data.get("gone", ())}
    return {
        **data,
        "names": dict(sorted({**names, **data["names"]}.items())),
        "groups": [*before["groups"], *data.get("groups", ())],
        "manifest": [*before["manifest"], *data.get("manifest", ())],
    }


def differences(month: str = CONTRACT_MONTH) -> dict[str, str]:
    """Return what the host modules lack of a contract or have in another form, by name."""
    found = {}
    for name, form in contract_of(month)["names"].items():
        here = _form_here(name, form)
        if here != form:
            found[name] = f"{form} there, {here} here"
    return found


def _form_here(name: str, wanted: str) -> str:
    """Return the form of a name in the host modules, as detailed as `wanted` is; "absent" if it is not there."""
    module = max((module for module in VIEWS if name.startswith(f"{module}.")), key=len, default="")
    if not module:
        return "absent"
    first, *rest = name.removeprefix(f"{module}.").split(".")
    if first not in VIEWS[module]:
        return "absent"
    value: Any = VIEWS[module][first]
    for part in rest:
        value = inspect.getattr_static(value, part, _ABSENT)
    if value is _ABSENT:
        return "absent"
    if type(value).__name__ == "Absent":
        return "raises"
    if wanted.startswith("="):
        return f"= {sorted(value) if isinstance(value, frozenset) else value!r}"
    if wanted == "value":
        return "value"
    if wanted == "class":
        return "class" if isinstance(value, type) else "no class"
    if wanted == "function":
        return "function" if callable(value) else "no function"
    return _signature(value)


_ABSENT = object()


def _signature(value: Any) -> str:
    """Return a signature as a contract writes it: without annotations and `self`, with "abstract" before it if it is."""
    mark = "abstract " if getattr(value, "__isabstractmethod__", False) else ""
    if isinstance(value, property):
        return f"{mark}property"
    signature = inspect.signature(value)
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    return mark + str(signature.replace(parameters=parameters, return_annotation=signature.empty))
