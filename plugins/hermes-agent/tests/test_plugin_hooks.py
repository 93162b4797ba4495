from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from hermes_core.contract.values import Query, Session, SessionSwitch, Turn
from hermes_core.home import HermesHome
from hermes_memory_foreign.adapter import HermesAgentProvider, adapt
from hermes_memory_foreign.environment import get_hermes_home
from hermes_memory_foreign.registration import HOOKS, Registrations
from tests.published_provider import Bare, hooks_of

CHAT = Session("s1", platform="telegram", user_id="42")
TURN = Turn("t1", 1, "tea?", "tea.", ({"role": "user", "content": "tea?"},))


class Reader:
    def messages(self) -> list[Any]:
        return []


class Package:
    """A package that registers a hook of every kind, and writes down what they are told."""

    def __init__(self, home: HermesHome) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.registrations = Registrations()
        for name in HOOKS:
            self.registrations.register_hook(name, self._hook(name))
        self.provider: HermesAgentProvider = adapt(Bare(), "bare", home, self.registrations)

    def _hook(self, name: str) -> Any:
        return lambda **facts: self.heard.append((name, facts))

    def told(self, name: str) -> dict[str, Any]:
        return next(facts for hook, facts in self.heard if hook == name)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.heard]


@pytest.fixture
def package(hermes_home: HermesHome) -> Iterator[Package]:
    made = Package(hermes_home)
    yield made
    made.provider.shutdown()


def test_hooks_are_called_at_our_moments_in_the_hosts_order(package: Package) -> None:
    provider = package.provider
    provider.initialize(CHAT)
    provider.prefetch(Query("tea?"), CHAT)
    provider.sync_turn(TURN, CHAT)
    provider.on_session_end(Reader(), "new", CHAT)
    provider.on_session_switch(SessionSwitch("x", CHAT, Session("s2"), "new", reset=True))
    assert package.names == [
        "on_session_start", "pre_llm_call", "post_llm_call", "on_session_end", "on_session_finalize", "on_session_reset"
    ]  # fmt: skip
    assert package.told("pre_llm_call")["user_message"] == "tea?"
    assert package.told("pre_llm_call")["sender_id"] == "42"
    assert (
        package.told("post_llm_call")["assistant_response"],
        package.told("post_llm_call")["turn_id"],
    ) == ("tea.", "t1")
    assert package.told("on_session_reset")["new_session_id"] == "s2"


def test_a_conversation_that_goes_on_is_not_reset(package: Package) -> None:
    package.provider.on_session_switch(SessionSwitch("x", CHAT, Session("s2"), "compression"))
    assert package.names == []


def test_the_moments_are_claimed_although_the_provider_has_no_such_method(package: Package) -> None:
    assert set(HOOKS.values()) <= hooks_of(package.provider)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([{"context": "likes tea"}], "likes tea"),
        (["likes tea", None, {"other": 1}, {"context": "hates coffee"}], "likes tea\n\nhates coffee"),
        ([None], ""),
    ],
)
def test_what_pre_llm_call_adds_stands_behind_the_recall(
    hermes_home: HermesHome, answers: list[Any], expected: str
) -> None:
    context = Registrations()
    for answer in answers:
        context.register_hook("pre_llm_call", lambda answer=answer, **_: answer)
    assert adapt(Bare(), "bare", hermes_home, context).prefetch(Query("tea?"), CHAT).text == expected


def test_a_hook_that_raises_costs_nothing_else(
    hermes_home: HermesHome, caplog: pytest.LogCaptureFixture
) -> None:
    context = Registrations()
    context.register_hook("pre_llm_call", lambda **_: 1 / 0)
    context.register_hook("pre_llm_call", lambda session_id: f"in {session_id} at {get_hermes_home()}")
    with caplog.at_level(logging.WARNING):
        found = adapt(Bare(), "bare", hermes_home, context).prefetch(Query("tea?"), CHAT)
    assert found.text == f"in s1 at {hermes_home.path}"
    assert "ZeroDivisionError" in caplog.text


def test_hooks_without_a_moment_are_reported() -> None:
    context = Registrations()
    context.register_hook("pre_gateway_dispatch", print)
    context.register_hook("pre_llm_call", print)
    context.register_hook("pre_tool_call", print)
    context.register_middleware("x", "y")
    assert context.warnings() == (
        "register_hook('pre_gateway_dispatch') has no effect here", "register_middleware has no effect here"
    )  # fmt: skip
