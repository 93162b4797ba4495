"""Forgetting a person: the provider is asked, waited for, and the report says what became of it."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hermes_core import Availability, MemoryProvider, open_memory
from hermes_core.actions.people import forget_person, report_sentences
from hermes_core.cli import main
from hermes_core.contract.values import Erasure, SessionSwitch, Turn
from hermes_core.errors import BackendUnavailable
from hermes_core.forget import provider_erasures
from hermes_core.home import HermesHome
from hermes_core.memory import Memory
from hermes_memory_testing.fakes import RecordingProvider
from tests.manager.conftest import until

USER = "telegram:42"


class Unable(MemoryProvider):
    """A provider that can take turns back, and forget nobody."""

    name = "unable"

    def __init__(self) -> None:
        self.switches: list[SessionSwitch] = []

    def is_available(self) -> Availability:
        return Availability()

    def backup_paths(self) -> list[str]:
        return ["/srv/unable.db"]

    def sync_turn(self, turn: Turn) -> None:
        """Take the turn."""

    def on_session_switch(self, switch: SessionSwitch) -> None:
        self.switches.append(switch)


def fill(memory: Memory) -> None:
    """Two sessions of the user in two chats, and one of somebody else."""
    for session_id, chat, text, user in (
        ("first", "7", "My locker code is 90210.", "42"),
        ("second", "8", "The heron sleeps in the boathouse.", "42"),
        ("other", "7", "My tortoise is called Quillfeather.", "43"),
    ):
        session = memory.start_session(session_id, platform="telegram", user_id=user, chat_id=chat)
        memory.end_turn(session, text, "Noted.", warm=False)
    assert memory.flush(10)


def asked(provider: RecordingProvider) -> list[tuple[str, str]]:
    return [
        (given["session"].id.split("-")[0], given["session"].chat_id) for given in provider.of("forget_user")
    ]


def test_a_provider_is_asked_for_each_session_as_it_was_and_last_for_the_user(
    hermes_home: HermesHome,
) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        fill(memory)
        report, late = forget_person(memory, USER)
        assert (report.complete, late) == (True, "")
        assert sorted(asked(provider)[:2]) == [("first", "7"), ("second", "8")]
        assert asked(provider)[2][0] == "forget"
        assert {given["user"] for given in provider.of("forget_user")} == {USER}
        assert {given["session"].owner for given in provider.of("forget_user")} == {USER}
        assert memory.manager.outbox.depth == 0


def test_the_report_says_what_the_provider_deleted_and_what_it_could_not(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    provider.results["forget_user"] = Erasure(("3 documents of the bank 'x'",), ("a log at y: rm it",))
    with open_memory(hermes_home, provider=provider) as memory:
        fill(memory)
        report, _ = forget_person(memory, USER)
    told = report_sentences(report)
    assert "fake has deleted 3 documents of the bank 'x'" in told
    assert "not deleted at fake: a log at y: rm it" in told
    assert not report.complete
    assert [one.state for one in report.providers] == ["incomplete"]


def test_a_provider_without_a_way_is_named_with_what_to_do(hermes_home: HermesHome) -> None:
    provider = Unable()
    with open_memory(hermes_home, provider=provider) as memory:
        fill(memory)
        report, _ = forget_person(memory, USER)
        assert [len(switch.rewound_turns) for switch in provider.switches] == [1, 1]
    (line,) = [one for one in report_sentences(report) if "unable" in one]
    assert line.startswith("nothing was deleted at unable: ")
    assert USER in line
    assert "/srv/unable.db" in line
    assert not report.complete


def test_a_request_that_fails_waits_in_the_outbox_and_is_made_again(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        fill(memory)
        provider.results["forget_user"] = BackendUnavailable("it is busy", retry_after=0.01)
        report, late = forget_person(memory, USER, timeout=0.2)
        assert ([one.state for one in report.providers], report.complete) == (["waiting"], False)
        assert "waits in the outbox" in late
        provider.results["forget_user"] = Erasure(("all of it",))
        assert memory.flush(10)
        assert memory.manager.erasures(USER) == {"fake": Erasure(("all of it",))}


def test_without_waiting_the_request_is_left_in_the_outbox(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    provider.gates["forget_user"] = threading.Event()
    with open_memory(hermes_home, provider=provider) as memory:
        fill(memory)
        report, _ = forget_person(memory, USER, timeout=0)
        assert [one.state for one in report.providers] == ["waiting"]
        provider.gates["forget_user"].set()
        assert memory.flush(10)
        assert len(provider.of("forget_user")) == 3


def test_a_request_is_kept_for_a_provider_that_is_not_in_use_now(hermes_home: HermesHome) -> None:
    earlier = RecordingProvider()
    with open_memory(hermes_home, provider=earlier) as memory:
        fill(memory)
    with open_memory(hermes_home, provider="") as memory:
        report, _ = forget_person(memory, USER)
        assert [(one.provider, one.state) for one in report.providers] == [("fake", "waiting")]
        assert not report.complete
    with open_memory(hermes_home, provider=earlier) as memory:
        memory.manager.initialize_all(memory.local_session)
        assert memory.flush(10)
    assert sorted(asked(earlier)) == [("first", "7"), ("second", "8")]


def test_a_wrong_answer_of_the_hook_is_no_erasure(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    provider.results["forget_user"] = True
    with open_memory(hermes_home, provider=provider) as memory:
        fill(memory)
        report, _ = forget_person(memory, USER, timeout=0.3)
        assert [one.state for one in report.providers] == ["waiting"]
        outbox = memory.manager.outbox
        assert until(lambda: "Erasure" in outbox.requests_to_forget()[0].error)
        rows = outbox.requests_to_forget()
        memory.manager.outbox.drop([row.number for row in rows])


@pytest.mark.parametrize(("answer", "code"), [(Erasure(), 0), (Erasure((), ("a copy: delete it",)), 3)])
def test_the_exit_code_is_0_only_if_all_is_forgotten(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch, answer: Erasure, code: int
) -> None:
    result, document = run_forget(hermes_home, monkeypatch, answer)
    assert result.exit_code == code, result.output
    assert document["providers"][0]["remaining"] == list(answer.remaining)


def run_forget(
    home: HermesHome, monkeypatch: pytest.MonkeyPatch, answer: Erasure
) -> tuple[Result, dict[str, Any]]:
    """Run the command on a home whose provider answers so."""
    provider = RecordingProvider()
    provider.results["forget_user"] = answer
    with open_memory(home, provider=provider) as memory:
        fill(memory)
        monkeypatch.setattr("hermes_core.cli.options.open_memory", lambda *_, **__: Borrowed(memory))
        result = CliRunner().invoke(main, ["forget", USER, "--yes", "--json"])
    return result, json.loads(result.stdout)


class Borrowed:
    """The memory of the test, which stays open when the command ends."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __enter__(self) -> Memory:
        return self._memory

    def __exit__(self, *_: object) -> None: ...


def test_a_request_that_another_process_took_is_no_erasure_that_is_known(hermes_home: HermesHome) -> None:
    with open_memory(hermes_home, provider=RecordingProvider()) as memory:
        fill(memory)
        assert forget_person(memory, USER)[0].complete
        # What this process knows if a gateway has sent the rows.
        memory.manager._registry.external[0].erasures.clear()
        (done,) = provider_erasures(memory, USER)
    assert (done.state, done.provider) == ("incomplete", "fake")
    assert "another process" in done.remaining[0]


def test_a_user_with_sessions_of_programs_alone_is_forgotten_too(hermes_home: HermesHome) -> None:
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        session = memory.start_session("s1", platform="telegram", user_id="42", agent_context="cron")
        memory.end_turn(session, "The heron sleeps in the boathouse.", "Noted.", warm=False)
        report, _ = forget_person(memory, USER)
    assert asked(provider)[-1][0] == "forget"
    assert report.complete
