"""Guards for the whole suite, and a provider as strangers write them: a folder in the home.

Other fixtures live in `hermes_memory_testing.pytest_plugin`, where authors get them too.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hermes_core.home import HermesHome
from hermes_core.loader.discover import BUNDLED

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))

import json_page


@pytest.fixture(scope="session", autouse=True)
def documented_json() -> Iterator[None]:
    """Every key that a command prints with `--json` in any test is in docs/reference/json.md, or that test fails."""
    invoke = CliRunner.invoke

    def looked_at(self: CliRunner, command: Any, args: Any = None, *more: Any, **options: Any) -> Result:
        result = invoke(self, command, args, *more, **options)
        words = list(args or ())
        if "--json" in words and (path := json_page.path_of(words)):
            for document in documents_in(result.stdout):
                assert json_page.not_told(document, json_page.rows(path)) == [], path
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CliRunner, "invoke", looked_at)
        yield


def documents_in(printed: str) -> list[Any]:
    """The JSON that was printed: one document, or one a line; none where something else was."""
    with contextlib.suppress(ValueError):
        return [json.loads(printed)]
    with contextlib.suppress(ValueError):
        return [json.loads(line) for line in printed.splitlines()]
    return []


LOCKBOX = '''
from pathlib import Path

from hermes_core import Field, HermesHome, MemoryProvider
from hermes_core.contract.values import Check
from hermes_core.errors import BackendAuthError, BackendUnavailable
from hermes_core.kit import load_settings

FIELDS = (
    Field("api_key", env="LOCKBOX_API_KEY", secret=True, required=True, url="https://lockbox.example/keys"),
    Field("mode", default="cloud", choices=("cloud", "self")),
    Field("server", env="LOCKBOX_SERVER", required=True, when={"mode": "self"}),
    Field("limit", int, 5, minimum=1, maximum=50),
)


class Lockbox(MemoryProvider):
    """Its key says how its backend is: "wrong" is refused, "down" is not answered."""

    name = "lockbox"
    settings = FIELDS

    def is_available(self):
        return load_settings(FIELDS, HermesHome.resolve().path, "lockbox").availability

    def initialize(self, session):
        self.key = load_settings(FIELDS, Path(session.home), "lockbox").api_key
        if self.key.startswith("wrong"):
            raise BackendAuthError("the backend refuses the key", "make a new one at https://lockbox.example/keys")

    def prefetch(self, query):
        if self.key.startswith("down"):
            raise BackendUnavailable("can't connect to lockbox.example", "start the server")
        return ""

    def check(self):
        if self.key.startswith("down"):
            raise BackendUnavailable("can't connect to lockbox.example", "start the server")
        return [Check("write, recall, delete", True)]
'''

InstallPlugin = Callable[..., Path]


@pytest.fixture
def install_plugin(hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstallPlugin]:
    """Write a provider's folder into the home; what was imported from it is forgotten afterwards."""
    for name in ("LOCKBOX_API_KEY", "LOCKBOX_SERVER"):
        monkeypatch.delenv(name, raising=False)

    def install(name: str = "lockbox", source: str = LOCKBOX, manifest: str = "") -> Path:
        folder = hermes_home.plugins / name
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(source)
        if manifest:
            (folder / "plugin.yaml").write_text(manifest)
        return folder

    yield install
    for module in [name for name in sys.modules if name.startswith("_hermes_user_memory")]:
        del sys.modules[module]


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a provider of ours that is not installed here."""
    monkeypatch.setitem(BUNDLED, "absent", "hermes-memory-absent")
    return "absent"
