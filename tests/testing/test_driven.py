"""Driving one provider without a manager."""

from __future__ import annotations

import json

from hermes_core import Field, HermesHome
from hermes_core.kit import ConfiguredProvider, tool
from hermes_core.testing import RecordingProvider, driving


class Teas(ConfiguredProvider):
    name = "teas"
    settings = (Field("place"), Field("key", env="TEAS_KEY", secret=True))

    def initialize(self, session: object) -> None:
        """There is nothing to open."""

    def shutdown(self) -> None:
        """There is nothing to close."""

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
