"""The package that a provider comes in: its entry point loads, its metadata helps, and its import is cheap."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

from hermes_core import HermesError, load_provider
from hermes_core.contract.provider import contract_faults
from hermes_core.testing.contract.suite import Suite

GROUP = "hermes_core.providers"
CORE = "hermes-memory-core"

_ANYBODYS = frozenset(
    {"agent", "common", "config", "docs", "examples", "helpers", "hermes", "memory", "plugins", "provider"}
    | {"providers", "scripts", "src", "test", "tests", "tools", "utils"}
)
"""Names of top-level modules that two distributions are likely to share, so that one overwrites the other."""

_WATCHED = """
import logging, os, signal, sys, threading
seen = []
def shared():
    root = logging.root
    return {{
        "the environment": dict(os.environ),
        "the working folder": os.getcwd(),
        "the root logger": (root.level, list(root.handlers), root.manager.disable),
        "handlers of signals": {{number: signal.getsignal(number) for number in signal.valid_signals()}},
        "sys.path": list(sys.path),
        "sys.excepthook": sys.excepthook,
        "threading.excepthook": threading.excepthook,
    }}
before = shared()
sys.addaudithook(lambda event, _: seen.append(event) if event in {events!r} else None)
import {module}
seen += [what for what, now in shared().items() if now != before[what]]
print(threading.active_count() - 1, sorted(set(seen)))
"""
_EVENTS = (
    "socket.connect",
    "socket.getaddrinfo",
    "subprocess.Popen",
    "os.system",
    "os.fork",
    "os.posix_spawn",
)


class Packaging(Suite):
    """Checks for a provider that is installed as a distribution, also in editable form."""

    def test_the_entry_point_loads_as_installed(self) -> None:
        point = self._entry_point()
        if contract_faults(self.run.provider):
            self.not_run("its form is not accepted")
        try:
            provider = load_provider(point.name, self.home).factory()
        except HermesError as exc:
            self.fault(
                f"the entry point {point.name} = {point.value} does not load: {exc}", "correct pyproject.toml"
            )
        if type(provider).__name__ != type(self.run.provider).__name__:
            self.fault(
                f"the entry point gives a {type(provider).__name__}, the suite tests a {type(self.run.provider).__name__}",
                "let make_provider return what the entry point names",
            )

    def test_the_entry_point_has_the_name_of_the_provider(self) -> None:
        point = self._entry_point()
        name = self.run.provider.name
        if point.name != name:
            self.fault(
                f"the entry point is {point.name!r} and the provider calls itself {name!r}",
                "use one name: it is the value of memory.provider and of the settings file",
            )

    def test_the_metadata_helps_to_find_it(self) -> None:
        metadata = self._distribution().metadata.json
        wanted = {"summary": "description", "requires_python": "requires-python"}
        missing = [key for field, key in wanted.items() if not metadata.get(field)]
        if not metadata.get("license_expression") and not metadata.get("license"):
            missing.append("license")
        if missing:
            self.fault(f"pyproject.toml does not say {', '.join(missing)}", "add it below [project]")

    def test_it_asks_for_the_core(self) -> None:
        if self.foreign:
            self.not_claimed("it is written for another host")
        needs = self._distribution().requires or []
        if not any(need.lower().replace("_", "-").startswith(CORE) for need in needs):
            self.fault(f"it does not depend on {CORE}", f'add "{CORE}" to dependencies')

    def test_its_types_are_shipped(self) -> None:
        self._distribution()
        spec = importlib.util.find_spec(self._module())
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        if not any(Path(folder, "py.typed").is_file() for folder in folders):
            self.fault(f"{self._module()} has no py.typed", "add an empty file py.typed to the package")

    def test_its_modules_have_names_of_their_own(self) -> None:
        files = self._distribution().files or []
        tops = {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}
        clash = sorted(tops & _ANYBODYS)
        if clash:
            self.fault(
                f"it installs a top-level module {clash[0]!r}",
                "put everything into one package named after the provider",
            )

    def test_its_import_starts_nothing(self) -> None:
        self._distribution()
        code = _WATCHED.format(events=frozenset(_EVENTS), module=self._module())
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        if done.returncode:
            self.not_run(f"a new process can't import {self._module()}: {done.stderr.strip()[-200:]}")
        *printed, last = done.stdout.strip().splitlines()
        if printed:
            self.fault(
                f"importing {self._module()} prints {printed[0][:80]!r}",
                "use logging: programs and MCP clients read what the host prints",
            )
        if last != "0 []":
            self.fault(
                f"importing {self._module()} starts threads, reaches out or changes the process: {last}",
                "do it in initialize, and import an SDK that does it there; every listing of commands may import the package",
            )

    # ------------------------------------------------------------------ private

    def _module(self) -> str:
        provider: Any = getattr(self.run.provider, "wrapped", self.run.provider)
        return type(provider).__module__.partition(".")[0]

    def _distribution(self) -> importlib.metadata.Distribution:
        """The distribution that brings the provider's module."""
        if self.run.provider is None:
            self.not_run("it can't be made")
        if self.distribution:
            return importlib.metadata.distribution(self.distribution)
        point = self._own_point()
        if point is None or point.dist is None:
            self.not_claimed("it is not installed as a package")
        return point.dist

    def _entry_point(self) -> importlib.metadata.EntryPoint:
        self._distribution()
        if self.foreign:
            self.not_claimed("it is found by the ways of Hermes Agent")
        point = self._own_point()
        if point is None:
            self.fault(
                f"{self.distribution} has no entry point in {GROUP!r}",
                f'add [project.entry-points."{GROUP}"] to pyproject.toml',
            )
        return point

    def _own_point(self) -> importlib.metadata.EntryPoint | None:
        """That of the provider; of several in its package the one that has its name, or names its class."""
        provider, module = self.run.provider, self._module()
        points = importlib.metadata.entry_points(group=GROUP)
        mine = [p for p in points if p.value.partition(":")[0].partition(".")[0].strip() == module]
        ranked = sorted(
            mine, key=lambda p: (p.name != provider.name, not p.value.endswith(f":{type(provider).__name__}"))
        )
        return next(iter(ranked), None)
