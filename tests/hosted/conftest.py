"""A provider of ours in a home, and the object that Hermes Agent is given for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hermes_core.home import HermesHome
from hermes_core.loader.hermes_agent.export import HostedProvider, register_in_hermes_agent

DIARY = """
'A MemoryProvider that records.'
from hermes_core import Field
from hermes_memory_testing import RecordingProvider

MADE = []
RESULTS = {}


class Diary(RecordingProvider):
    name = "diary"
    settings = (
        Field("bank", default="main", identity=True, help="Whose diary"),
        Field("limit", int, 0, minimum=0, maximum=9, env="DIARY_LIMIT"),
        Field("loud", bool, False),
        Field("key", env="DIARY_KEY", secret=True, required=True, url="https://diary.example"),
        Field("names", dict),
        Field("pages", list),
        Field("ink", advanced=True),
    )

    def __init__(self):
        super().__init__()
        self.results.update(RESULTS)
        MADE.append(self)
"""


class Ctx:
    """What Hermes Agent 0.19 gives to `register`."""

    provider: Any = None

    def register_memory_provider(self, provider: Any) -> None:
        self.provider = provider


@pytest.fixture
def register(
    hermes_home: HermesHome, install_plugin: Callable[..., Any], host_modules: None
) -> Iterator[Callable[[], HostedProvider]]:
    """What the host holds after `register(ctx)`, as often as it calls that."""
    install_plugin("diary", DIARY)
    given: list[HostedProvider] = []

    def call() -> HostedProvider:
        ctx = Ctx()
        register_in_hermes_agent(ctx, "diary")
        given.append(ctx.provider)
        return given[-1]

    yield call
    for hosted in given:
        hosted.shutdown()


def diary_module() -> Any:
    """The module of the provider, once it is loaded."""
    return next(
        module for name, module in sys.modules.items() if name.startswith("_hermes_user_memory.diary")
    )
