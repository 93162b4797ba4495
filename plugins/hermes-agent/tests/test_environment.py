"""The environment that a published provider finds: its home's while it is active, and whose when there are two."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_core.config import Credentials
from hermes_core.contract.values import Session, Turn
from hermes_core.home import HermesHome
from hermes_memory_foreign.adapter import HermesAgentProvider, adapt
from hermes_memory_foreign.registration import Registrations

Start = Callable[[str], HermesAgentProvider]


class Reader:
    """Reads the environment itself, in every call."""

    name = "reader"

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, str | None]] = []

    def is_available(self) -> bool:
        return True

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self._look()

    def get_tool_schemas(self) -> list[Any]:
        return []

    def sync_turn(self, user: str, assistant: str, *, session_id: str = "") -> None:
        self._look()

    def _look(self) -> None:
        self.seen.append((os.environ.get("HERMES_HOME"), os.environ.get("READER_KEY")))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A provider that is active in the home of this name, whose `.env` has the name as its key."""
    monkeypatch.setenv("HERMES_HOME", "before")
    monkeypatch.delenv("READER_KEY", raising=False)

    def begin(name: str) -> HermesAgentProvider:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / ".env").write_text(f"READER_KEY={name}\n")
        provider = adapt(Reader(), "reader", HermesHome(tmp_path / name), Registrations())
        provider.initialize(Session("s1"))
        return provider

    return begin


def turn(provider: HermesAgentProvider) -> Any:
    """What the provider sees in its environment during a turn: the home's last part, and the key."""
    provider.sync_turn(Turn("t", 1, "hi", "hello"), Session("s1"))
    home, key = provider.wrapped.seen[-1]
    return Path(home).name, key


def test_an_active_provider_finds_its_home_and_secrets_in_the_environment(start: Start) -> None:
    provider = start("a")
    assert turn(provider) == ("a", "a")
    provider.shutdown()
    assert os.environ["HERMES_HOME"] == "before"
    assert "READER_KEY" not in os.environ


def test_it_ends_with_the_last_session(start: Start) -> None:
    first, second = start("a"), start("a")
    first.shutdown()
    assert turn(second) == ("a", "a")
    second.shutdown()
    assert os.environ["HERMES_HOME"] == "before"


def test_with_two_homes_it_stays_that_of_the_first_and_this_is_said(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        first, second = start("a"), start("b")
    assert Path(str(second.wrapped.seen[0][0])).name == "b"  # while it starts, it is its own
    assert (turn(first), turn(second)) == (("a", "a"), ("a", "a"))
    assert "run it in a process of its own" in caplog.text
    first.shutdown()
    assert turn(second) == ("b", "b")
    second.shutdown()
    assert os.environ["HERMES_HOME"] == "before"


def test_a_secret_that_one_home_lent_is_not_read_by_another(start: Start, tmp_path: Path) -> None:
    provider = start("a")
    own, other = Credentials(HermesHome(tmp_path / "a")), Credentials(HermesHome(tmp_path / "b"))
    assert os.environ["READER_KEY"] == "a"
    assert (own.get("READER_KEY"), own.source("READER_KEY")) == ("a", ".env")
    assert other.get("READER_KEY") is None
    provider.shutdown()


def test_what_somebody_else_changed_meanwhile_stays(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = start("a")
    monkeypatch.setenv("HERMES_HOME", "chosen later")
    provider.shutdown()
    assert os.environ["HERMES_HOME"] == "chosen later"


def test_a_start_that_fails_leaves_nothing_behind(start: Start, tmp_path: Path) -> None:
    provider = adapt(Reader(), "reader", HermesHome(tmp_path), Registrations())
    provider.wrapped.initialize = lambda session_id: 1 / 0
    with pytest.raises(ZeroDivisionError):
        provider.initialize(Session("s1"))
    assert os.environ["HERMES_HOME"] == "before"
