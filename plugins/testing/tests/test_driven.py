"""Driving one provider without a manager."""

from __future__ import annotations

import asyncio
import json

import pytest

from hermes_core import Field, HermesHome, MemoryProvider, MemoryWrite, Query, Session, Turn
from hermes_core.errors import ProviderInvalid
from hermes_core.kit import ConfiguredProvider, tool
from hermes_memory_testing import RecordingProvider, driving


class Teas(ConfiguredProvider):
    name = "teas"
    settings = (Field("place"), Field("key", env="TEAS_KEY", secret=True))

    @tool("teas_tell")
    def tell(self) -> dict[str, str]:
        """Tell what is set."""
        return {"place": self.options.place, "key": self.options.key}


def test_settings_and_secrets_are_where_a_provider_looks_and_tools_answer_values(
    hermes_home: HermesHome,
) -> None:
    with driving(Teas(), hermes_home, {"place": "Uji"}, {"TEAS_KEY": "sk-1"}) as teas:
        assert teas.tool("teas_tell") == {"place": "Uji", "key": "sk-1"}
    assert json.loads(hermes_home.provider_json("teas").read_text()) == {"place": "Uji"}


def test_it_is_started_asked_and_shut_down(hermes_home: HermesHome) -> None:
    with driving(RecordingProvider(), hermes_home) as driven:
        driven.say("I like oolong.", "t7")
        driven.write("w1", "add", "Likes tea.", target="user")
        assert driven.recalled("What do I like?") == ["s1: What do I like?"]
    assert driven.provider.hooks == ["initialize", "sync_turn", "on_memory_write", "prefetch", "shutdown"]


class Notes(MemoryProvider):
    """Names only what it uses, in its own order, and works in one event loop."""

    name = "notes"

    async def initialize(self, session: Session) -> None:
        self.loop, self.home, self.notes = asyncio.get_running_loop(), session.home, list[str]()

    async def sync_turn(self, session: Session, turn: Turn) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.notes.append(f"{session.id}: {turn.user}")

    def on_memory_write(self, write: MemoryWrite) -> None:
        self.notes.append(write.content)

    async def prefetch(self, query: Query) -> str:
        return f"{query.text} {self.notes}"

    async def shutdown(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.notes.clear()


def test_hooks_get_what_they_name_and_coroutines_run_on_one_loop(hermes_home: HermesHome) -> None:
    with driving(Notes(), hermes_home) as driven:
        driven.say("I like oolong.")
        driven.write("w1", "add", "Likes tea.")
        assert driven.recalled("Which?") == ["Which? ['s1: I like oolong.', 'Likes tea.']"]
        assert driven.provider.home == str(hermes_home.path)
    assert driven.provider.notes == []


def test_what_a_manager_would_refuse_is_not_driven(hermes_home: HermesHome) -> None:
    class Misspelt(MemoryProvider):
        name = "misspelt"

        def sync_turns(self, turn: Turn) -> None: ...

    with pytest.raises(ProviderInvalid, match="did you mean sync_turn"), driving(Misspelt(), hermes_home):
        pass
