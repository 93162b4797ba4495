"""The page on the contract of Hermes Agent: the month that is spoken here, its names, and the differences."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tables import cell

from hermes_memory_foreign.contract import KNOWN_DIFFERENCES, contract_of, months
from hermes_memory_foreign.manifest import CONTRACT_MONTH


def contract_page() -> Iterator[str]:
    """The page."""
    newest = contract_of(CONTRACT_MONTH)
    yield "# The contract of Hermes Agent"
    yield (
        "Providers written for Hermes Agent import its modules. This project offers modules of the same names, so that they "
        f"run without it. The contract spoken here is that of **{CONTRACT_MONTH}**, version {newest['version']}. It is also "
        "what `hermes_cli.__version__` says, and what `requires_hermes` of a plugin is compared with.\n"
    )
    yield "The contract of each month is data in `hermes_memory_foreign/contracts/`: names, signatures and values.\n"
    yield "| month | version | known from | names | new or changed |\n|---|---|---|---|---|"
    for month in months():
        data = contract_of(month)
        before = contract_of(data["based_on"])["names"] if "based_on" in data else {}
        changed = [name for name, form in data["names"].items() if before.get(name) != form]
        count = str(len(changed)) if before else "all"
        yield f"| {month} | {data['version']} | {cell(data['about'])} | {len(data['names'])} | {count} |"
    yield "\n## Differences\n"
    yield "A test compares the host modules with the newest month. These differences stay:\n"
    yield "| name | here |\n|---|---|"
    for name, reason in sorted(KNOWN_DIFFERENCES.items()):
        yield f"| `{name}` | {cell(reason)} |"
    yield (
        "\nAn argument of a function is used, or refused with a `TypeError` that names it. A module of Hermes Agent that is "
        "not in this list is absent: an import of it raises `ModuleNotFoundError`, and the provider is listed as "
        "unavailable with that reason.\n"
    )
    yield "## plugin.yaml\n"
    yield (
        f"Read are {', '.join(f'`{key}`' for key in newest['manifest'])}. `requires_hermes` and `platforms` are compared "
        "before any code runs. What `provides_tools`, `provides_hooks` and `capabilities` declare is shown at the "
        "installation of an entry of the catalog; what is registered and not declared is a note in `hermes-memory "
        "providers`.\n"
    )
    yield "## Names\n"
    for module, names in groupby(newest["names"].items(), key=lambda pair: _module(pair[0])):
        yield f"### {module}\n\n| name | form |\n|---|---|"
        for name, form in names:
            yield f"| `{name.removeprefix(f'{module}.')}` | {cell(f'`{form}`')} |"
        yield ""


def _module(name: str) -> str:
    """The module of a name: its parts before the first class, function or constant."""
    parts = name.split(".")
    owners = [at for at, part in enumerate(parts) if part != part.lower()]
    return ".".join(parts[: owners[0]] if owners and owners[0] < len(parts) - 1 else parts[:-1])
