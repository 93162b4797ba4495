"""The parts of a home that extensions keep, such as skills, and the record of them in `parts.json`.

The record names the extension and its package, so that data of an extension that is missing is never skipped in silence.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from hermes_core.config import Config
from hermes_core.contract.extensions import HomePart, PartStore
from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.loader.extensions import (
    Extensions,
    extension_remedy,
    import_target,
    load_extensions,
    part_fault,
)
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_core.packages import KNOWN_EXTENSIONS
from hermes_core.storage.files import locked, write_atomic

FILE_NAME = "parts.json"
"""File in a home that names the parts that extensions have stored there."""

_USERS = "memories/users/"


class HomeParts:
    """The parts of one home.

    Args:
        extensions: The extensions that the configuration lets in; default: they are loaded now.
    """

    def __init__(self, home: HermesHome, config: Config, extensions: Extensions | None = None) -> None:
        self._home, self._config = home, config
        self._extensions = load_extensions(config) if extensions is None else extensions
        self._recorded = recorded_parts(home.path)
        self._faults: dict[str, str] = {}

    def record(self) -> None:
        """Enter the parts that the home has now. A home that can't be written has no record; other checks report it."""
        new: dict[str, HomePart] = {}
        for name, found in self._extensions.parts.items():
            part = replace(found, target="")
            if self._recorded.get(name) != part and part.folders(self._home.path):
                new[name] = part
        if not new:
            return
        path = self._home.path / FILE_NAME
        with contextlib.suppress(StorageError), locked(path):
            known = recorded_parts(self._home.path)
            self._recorded = known | new
            data = {name: asdict(part) for name, part in self._recorded.items()}
            write_atomic(path, (json.dumps(data, indent=1, sort_keys=True) + "\n").encode())

    @property
    def known(self) -> Mapping[str, HomePart]:
        """The parts that an extension offers, and those that the home has though their extension is missing."""
        return {**self._recorded, **self._extensions.parts}

    @cached_property
    def stores(self) -> Mapping[str, PartStore]:
        """The stores of the parts whose extensions work, by name of the part."""
        made = {name: self._store(part) for name, part in self._extensions.parts.items()}
        return {name: store for name, store in made.items() if store is not None}

    @property
    def absent(self) -> list[HomePart]:
        """The parts that the home has and whose extension is missing or blocked, or whose store could not be opened."""
        parts = self._extensions.parts
        missing = [part for name, part in self._recorded.items() if name not in parts or name in self._faults]
        return [part for part in missing if part.folders(self._home.path)]

    def problems(self) -> list[str]:
        """Return a sentence for each absent part: what is there, which package it needs, and how to install it."""
        if not self._recorded:
            return []
        return [f"{self.fact(part)}; {self.remedy(part)}" for part in self.absent]

    def fact(self, part: HomePart) -> str:
        """Return what an absent part needs."""
        need = f"the {part.name} of this home need the package {part.package}"
        if fault := self._faults.get(part.name):
            return f"{need}, whose extension {part.extension!r} failed: {fault}"
        found = next((one for one in self._extensions.found if one.name == part.extension), None)
        if found is None:
            return f"{need}, which is not installed"
        if found.reason:
            return f"{need}, whose extension {part.extension!r} is {found.state}: {found.reason}"
        return f"{need}, and its version {found.version} does not offer them"

    def remedy(self, part: HomePart) -> str:
        """Return what to do about an absent part."""
        if (
            any(one.name == part.extension for one in self._extensions.found)
            or part.extension in KNOWN_EXTENSIONS
        ):
            return extension_remedy(self._extensions, part.extension)
        return f"install the package {part.package} again"

    def has_items_at_home(self) -> bool:
        """Return True if the person at home has items of a part."""
        users = self._home.path / _USERS
        return any(
            users not in folder.parents
            for part in self.known.values()
            for folder in part.folders(self._home.path)
        )

    def _store(self, part: HomePart) -> PartStore | None:
        make = call_foreign(import_target, part.target)
        store = make if isinstance(make, ForeignError) else call_foreign(make, self._home, self._config)
        if isinstance(store, ForeignError):
            self._faults[part.name] = str(store)
            return None
        return cast(PartStore, store)


def recorded_parts(home: Path) -> dict[str, HomePart]:
    """Return the parts that the home has according to its record, by name; {} if the record can't be read."""
    path = home / FILE_NAME
    try:
        # Opening a pipe would block.
        data = json.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return {}
    entries = data.items() if isinstance(data, dict) else ()
    return {name: part for name, entry in entries if (part := _part(name, entry)) is not None}


def _part(name: str, entry: Any) -> HomePart | None:
    """Return a part of the record; None if the entry is damaged. A backup of anybody may have brought the file."""
    if not isinstance(entry, dict) or not isinstance(entry.get("patterns"), list):
        return None
    try:
        part = HomePart(**{**entry, "patterns": tuple(entry["patterns"]), "target": ""})
    except TypeError:  # other fields
        return None
    return part if part.name == name and not part_fault(part) else None
