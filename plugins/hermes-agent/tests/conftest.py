"""The modules of Hermes Agent for a test, forgotten afterwards, and the fixtures of the core's own tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from hermes_memory_foreign import environment as environment_module
from hermes_memory_foreign.host_modules import HOST_NAMES, HostModules, install_host_modules
from tests.cli.conftest import data as data
from tests.cli.conftest import hermes as hermes
from tests.cli.conftest import notes as notes
from tests.conftest import absent as absent
from tests.conftest import documented_json as documented_json
from tests.conftest import install_plugin as install_plugin
from tests.loader.conftest import site as site


@pytest.fixture(autouse=True)
def no_host_modules_left() -> Iterator[None]:
    """Modules of Hermes Agent that a test imports are forgotten: the next test may have others."""
    before = set(sys.modules)
    yield
    for name in (HOST_NAMES & sys.modules.keys()) - before:
        del sys.modules[name]


@pytest.fixture
def no_host_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """No modules of Hermes Agent, whatever other tests left behind."""
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if not isinstance(one, HostModules)])
    for name in HOST_NAMES & sys.modules.keys():
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def host_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of Hermes Agent, as we know them; forgotten afterwards."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(environment_module, "_last_home", [])
    install_host_modules()
    yield
    for name in HOST_NAMES & sys.modules.keys():
        del sys.modules[name]
