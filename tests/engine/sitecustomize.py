"""Homes on a PostgreSQL server: a home that names no server gets a schema of its own on the server of the tests.

Python imports this module at its start if PYTHONPATH names this folder. So it holds for the programs that tests start.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import os
import socket
import sys
from pathlib import Path
from typing import Any

from msgspec import structs

SERVER = "HERMES_TEST_SERVER"
"""Environment variable: address of the server. Without it, each home has its files."""

PREFIX = "HERMES_TEST_PREFIX"
"""Environment variable: how the names of all schemas begin."""


def schema_of(home: Path) -> str:
    """Return the name of the schema of a home."""
    return os.environ[PREFIX] + hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]


def put_homes_on_server(module: Any) -> None:
    """Let `load_config` of the module name the server, unless the home or the caller has an environment of its own."""
    load_config = module.load_config

    def load(home: Any, environ: Any = None) -> Any:
        config = load_config(home, environ)
        if environ is not None or config.storage.url or not os.environ.get(SERVER):
            return config
        storage = structs.replace(
            config.storage,
            url=os.environ[SERVER],
            schema=schema_of(home.path),
            # All machines of a test are this one.
            local_host=config.storage.local_host or socket.gethostname(),
        )
        return structs.replace(config, storage=storage)

    module.load_config = load


# What doctor finds about the server of the tests, which is fast and unsafe, and to which they connect as its superuser.
UNSAFE_SERVER = {"fsync", "full_page_writes", "vacuum", "role"}


def pass_server(module: Any) -> None:
    """Let doctor say nothing of the settings of the server: the tests of these have a server of their own."""
    examine_server = module.examine_server

    def examine(home: Any, config: Any, *more: Any) -> Any:
        ours = config.storage.schema.startswith(os.environ.get(PREFIX, " "))
        for finding in examine_server(home, config, *more):
            if not ours or finding.what not in UNSAFE_SERVER:
                yield finding

    module.examine_server = examine


CHANGES = {
    "hermes_core.config.file": put_homes_on_server,
    "hermes_memory_postgresql.doctor": pass_server,
}


class ChangingLoader(importlib.abc.Loader):
    """Loader that changes a module after another loader has executed it."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: Any) -> Any:
        """Return None: the usual module."""
        return None

    def exec_module(self, module: Any) -> None:
        """Execute the module, then change it."""
        self._loader.exec_module(module)
        CHANGES[module.__name__](module)


class ChangingFinder(importlib.abc.MetaPathFinder):
    """Finder that changes some modules when they are imported, before others take names from them."""

    def __init__(self) -> None:
        self._pending = set(CHANGES)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Return the spec of such a module with a loader of ours; None for all others."""
        if fullname not in self._pending:
            return None
        self._pending.remove(fullname)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        spec.loader = ChangingLoader(spec.loader)
        return spec


def install() -> None:
    """Change the modules when they are imported."""
    loaded = CHANGES.keys() & sys.modules.keys()
    assert not loaded, f"{loaded} were imported before"
    sys.meta_path.insert(0, ChangingFinder())


if __name__ == "sitecustomize":
    install()
