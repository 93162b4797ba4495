from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hermes_core import HermesHome
from tests.cli.conftest import Hermes

DUCK = """
class Duck:
    name = "duck"

    def is_available(self):
        return True

    def initialize(self, session_id, **kwargs):
        pass

    def get_tool_schemas(self):
        return []


def register(ctx):
    ctx.register_memory_provider(Duck())
    ctx.register_hook("pre_gateway_dispatch", print)
"""


QUACK = """
def register_cli(subparser):
    subparser.add_argument("--loud", action="store_true")
    subparser.set_defaults(func=lambda options: print("QUACK" if options.loud else "quack") or 5)
"""


@pytest.fixture
def duck(hermes: Hermes, hermes_home: HermesHome) -> Iterator[None]:
    """A provider written for Hermes Agent, with commands of its own, is the active one."""
    folder = hermes_home.plugins / "duck"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(DUCK)
    (folder / "cli.py").write_text(QUACK)
    hermes("memory", "use", "duck")
    yield
    for module in [name for name in sys.modules if name.startswith("_hermes_user_memory")]:
        del sys.modules[module]


def test_the_commands_of_a_published_provider_get_every_word(hermes: Hermes, duck: None) -> None:
    assert "QUACK" in hermes("duck", "--loud", code=5).stdout
    assert "--loud" in hermes("duck", "--help").stdout
    assert "unrecognized arguments" in hermes("duck", "--soft", code=2).stderr


def test_what_has_no_effect_here_is_listed(hermes: Hermes, data: Callable[..., Any], duck: None) -> None:
    note = "register_hook('pre_gateway_dispatch') has no effect here"
    assert f"duck: {note}" in hermes("providers").stdout
    (entry,) = [entry for entry in data("providers") if entry["name"] == "duck"]
    assert entry["notes"] == [note]
