"""Small packages and folders in the styles that published providers use, written where the loader looks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from hermes_core.home import HermesHome

NATIVE = """
from hermes_core import MemoryProvider

class Notes(MemoryProvider):
    name = "notes"

    def prefetch(self, query):
        return "tea"
"""

DUCK = """
class Duck:
    name = "duck"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        self.started = (session_id, kwargs)

    def get_tool_schemas(self):
        return []

    def prefetch(self, query, *, session_id=""):
        return f"quack {query} in {session_id}"
"""

REGISTER = """
def register(ctx):
    ctx.register_memory_provider(Duck())
"""


class Site:
    """A site-packages folder on `sys.path`, and the plugin folders of one home."""

    def __init__(self, folder: Path, home: HermesHome) -> None:
        self.folder, self.home = folder, home

    def module(self, name: str, source: str) -> Path:
        """Write one module; dots make packages."""
        *packages, last = name.split(".")
        parent = self.folder
        for package in packages:
            parent /= package
            parent.mkdir(exist_ok=True)
            (parent / "__init__.py").touch()
        (parent / f"{last}.py").write_text(dedent(source))
        return parent / f"{last}.py"

    def distribution(
        self, name: str, groups: dict[str, dict[str, str]], requires: tuple[str, ...] = ()
    ) -> None:
        """Write the metadata of an installed distribution with these entry points."""
        info = self.folder / f"{name.replace('-', '_')}-1.2.dist-info"
        info.mkdir()
        needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\nSummary: Remembers\n{needs}"
        )
        lines = [
            line
            for group, points in groups.items()
            for line in (f"[{group}]", *(f"{key} = {value}" for key, value in points.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))

    def plugin(self, name: str, source: str, manifest: str = "", where: str = "plugins") -> Path:
        """Write a plugin folder below the home."""
        folder = self.home.path / where / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(dedent(source))
        if manifest:
            (folder / "plugin.yaml").write_text(manifest, encoding="utf-8-sig")
        return folder


@pytest.fixture
def site(tmp_path: Path, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Where a test installs its providers; what they import is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    hermes_home.path.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    yield Site(folder, hermes_home)
    for name in set(sys.modules) - before:
        file = str(getattr(sys.modules[name], "__file__", None) or "")
        if name.startswith("_hermes_user_memory") or file.startswith(str(tmp_path)):
            del sys.modules[name]
