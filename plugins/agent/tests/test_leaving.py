"""Leaving `hermes-memory chat` while a look back at memory runs behind the last answer."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hermes_core.config import set_value
from hermes_core.home import HermesHome
from hermes_core.memory import open_memory
from hermes_core.stopping import wait_unless_stopped
from hermes_memory_agent.cli.chat_terminal import TerminalChat
from hermes_memory_testing.model_server import ModelServer, Reply
from plugins.agent.tests.test_chat import chat, end, home, never, server, sessions, started
from plugins.agent.tests.test_review import ADD, is_look_back

__all__ = ["home", "never", "server"]

STOPPED = "was stopped; it comes after the next answer"


@pytest.fixture
def reviewed(home: HermesHome) -> HermesHome:
    set_value(home, "memory.nudge_interval", 1)
    set_value(home, "memory.flush_min_turns", 0)
    return home


def entries(home: HermesHome) -> tuple[str, ...]:
    with open_memory(home) as memory:
        return memory.curated.entries("user")


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], Reply]:
    """A model that answers at once, and in a review only when the program waits for the review."""
    return partial(review_when, note_waits(monkeypatch))


def note_waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that is set when the program waits for a review."""
    waiting, wait = threading.Event(), wait_unless_stopped

    def note_wait(*given: Any) -> bool:
        waiting.set()
        return wait(*given)

    monkeypatch.setattr("hermes_memory_agent.cli.chat.wait_unless_stopped", note_wait)
    return waiting


def review_when(waiting: threading.Event, request: dict[str, Any]) -> Reply:
    if not is_look_back(request):
        return Reply("Good morning.")
    assert waiting.wait(60)
    return Reply("done") if request["messages"][-1]["role"] == "tool" else Reply(calls=[ADD])


@pytest.mark.parametrize("arguments", [("-m", "Hello."), ("-m", "Hello.", "--json"), ()])
def test_a_look_back_comes_to_its_end_where_nobody_sits(
    reviewed: HermesHome,
    server: ModelServer,
    slowly: Callable[[dict[str, Any]], Reply],
    arguments: tuple[str, ...],
) -> None:
    set_value(reviewed, "agent.flush_seconds", 60.0)
    server._script = [slowly]
    result = chat(*arguments, typed="Hello.\n")
    assert result.exit_code == 0
    assert "reviewing the conversation for memory" in result.stderr
    assert "Memory updated: user (add)" in result.stderr
    assert STOPPED not in result.stderr
    if "--json" in arguments:
        assert json.loads(result.stdout)["text"] == "Good morning."
    else:
        assert "memory" not in result.stdout
    assert entries(reviewed) == ("Prefers short answers.",)


@pytest.fixture
def held(server: ModelServer, never: threading.Event) -> threading.Event:
    """Look backs that come to no end; set once one was asked for."""
    asked = threading.Event()

    def reply(request: dict[str, Any]) -> Reply:
        if not is_look_back(request):
            return Reply("Good morning.")
        asked.set()
        return Reply("Let me", hold=never)

    server._script = [reply]
    return asked


def test_a_look_back_that_takes_long_is_stopped_and_told_of_and_comes_next_time(
    reviewed: HermesHome,
    server: ModelServer,
    held: threading.Event,
    slowly: Callable[[dict[str, Any]], Reply],
) -> None:
    set_value(reviewed, "agent.flush_seconds", 0.3)
    result = chat("-m", "Hello.", "--json")  # the model would let it wait for ever
    assert (result.exit_code, json.loads(result.stdout)["problems"]) == (0, [])
    assert STOPPED in result.stderr
    set_value(reviewed, "memory.nudge_interval", 2)
    set_value(reviewed, "agent.flush_seconds", 60.0)
    server._script = [slowly]
    assert "Memory updated" in chat("-m", "Hello again.", "--resume", "last").stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_stops_a_look_back_and_the_answer_stands(
    reviewed: HermesHome, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = note_waits(monkeypatch)
    set_value(reviewed, "agent.flush_seconds", 60.0)

    def press() -> None:
        assert held.wait(30)
        assert waiting.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    began = time.monotonic()
    result = chat("-m", "Hello.")
    assert time.monotonic() - began < 30
    assert (result.exit_code, result.stdout) == (0, "Good morning.\n")
    assert STOPPED in result.stderr


def test_who_leaves_a_chat_waits_for_no_look_back_and_is_told(
    reviewed: HermesHome, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TerminalChat, "interactive", property(lambda _: True))
    set_value(reviewed, "agent.flush_seconds", 60.0)
    began = time.monotonic()
    result = chat(typed="Hello.\n/quit\n")
    assert time.monotonic() - began < 30
    assert result.exit_code == 0
    assert STOPPED in result.stderr
    assert STOPPED not in chat(typed="/quit\n").stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_model_that_hangs_over_what_to_save_holds_a_sigterm_for_seconds_only(
    home: HermesHome, server: ModelServer, never: threading.Event
) -> None:
    set_value(home, "agent.flush_seconds", 60.0)
    set_value(home, "memory.flush_min_turns", 1)
    child = started(home)
    server._script = [Reply("Let me", hold=never)]
    began = time.monotonic()
    assert end(child, signal.SIGTERM) == 128 + signal.SIGTERM
    took = time.monotonic() - began
    assert len(server.requests) == 2
    assert took < 45, "the flush ends long before its 60 seconds; the rest is for a busy machine"
    assert [session.end_reason for session in sessions(home)] == ["close"]
