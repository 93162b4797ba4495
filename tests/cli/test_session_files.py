"""Commands people expect: rename, archive, pin, filters of prune, retention, forget, and hints."""

from __future__ import annotations

import json
import time

import click
import pytest
from click.testing import CliRunner, Result

from hermes_core import open_memory
from hermes_core.cli import COMMANDS, HINTS, main
from hermes_core.config import set_value
from hermes_core.home import HermesHome
from hermes_core.memory import Memory
from hermes_memory_testing.fakes import RecordingProvider

DAY_S = 86_400.0


def run(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == code, result.output + result.stderr
    return result


def say(memory: Memory, session_id: str, *texts: str, days: float = 0, **identity: str) -> None:
    """Store a conversation of `days` ago."""
    at = time.time() - days * DAY_S
    session = memory.start_session(session_id, started_at=at, **identity)
    for text in texts:
        memory.end_turn(session, text, "Noted.", at=at, warm=False)


@pytest.fixture
def filled(hermes_home: HermesHome) -> HermesHome:
    """A home with sessions of two users, old and new."""
    with open_memory(hermes_home) as memory:
        say(memory, "old", "The tent is in the cellar.", days=90, platform="cli")
        say(memory, "long", "One.", "Two.", "Three.", days=80, platform="cli")
        say(memory, "hers", "I like tea.", days=70, platform="telegram", user_id="42")
        say(memory, "his", "I like rye.", platform="telegram", user_id="43")
    return hermes_home


def ids(home: HermesHome, *, archived: bool = False) -> set[str]:
    with open_memory(home) as memory:
        return {
            entry.session.id for entry in memory.sessions.list_sessions(everybody=True, archived=archived)
        }


def test_rename_sets_and_removes_the_title(filled: HermesHome) -> None:
    run("sessions", "rename", "old", "Camping")
    assert "cellar" in run("sessions", "show", "Camping").stdout
    run("sessions", "rename", "long", "Camping", code=1)
    run("sessions", "rename", "Camping", "")
    run("sessions", "show", "Camping", code=1)


def test_an_archived_conversation_is_in_no_list_and_is_found(filled: HermesHome) -> None:
    run("sessions", "archive", "old")
    assert ids(filled) == {"long", "hers", "his"}
    assert ids(filled, archived=True) == {"old"}
    assert "old" in run("sessions", "list", "--archived").stdout
    assert "cellar" in run("sessions", "search", "tent").stdout
    run("sessions", "archive", "old", "--off")
    assert "old" in ids(filled)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--older-than", "75"], {"hers", "his"}),
        (["--older-than", "60", "--exclude-source", "telegram"], {"hers", "his"}),
        (["--older-than", "60", "--user", "telegram:42"], {"old", "long", "his"}),
        (["--older-than", "60", "--max-messages", "2"], {"long", "his"}),
        (["--older-than", "0", "--keep", "2"], {"hers", "his"}),
        (["--older-than", "0", "--archived"], {"old", "long", "hers", "his"}),
    ],
)
def test_prune_takes_filters(filled: HermesHome, options: list[str], left: set[str]) -> None:
    run("sessions", "prune", "--yes", *options)
    assert ids(filled) == left


def test_a_pinned_conversation_is_never_pruned(filled: HermesHome) -> None:
    run("sessions", "pin", "old")
    run("sessions", "prune", "--yes", "--older-than", "0")
    assert ids(filled) == {"old"}
    run("sessions", "pin", "old", "--off")
    run("sessions", "prune", "--yes", "--older-than", "0")
    assert ids(filled) == set()


def test_retention_prunes_at_the_start_of_a_session(filled: HermesHome) -> None:
    run("sessions", "pin", "old")
    set_value(filled, "sessions.retention", 75)
    with open_memory(filled) as memory:
        memory.start_session("new")
        assert memory.problems() == []
    assert ids(filled) == {"old", "hers", "his"}


def test_without_retention_nothing_is_pruned(filled: HermesHome) -> None:
    with open_memory(filled) as memory:
        memory.start_session("new")
    assert ids(filled) == {"old", "long", "hers", "his"}


def test_a_forgotten_user_is_in_no_store_and_the_provider_is_asked(hermes_home: HermesHome) -> None:
    from hermes_core.forget import forget_user

    set_value(hermes_home, "memory.per_user", True)
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        say(memory, "hers", "My locker code is 90210.", platform="telegram", user_id="42")
        say(memory, "his", "I like rye.", platform="telegram", user_id="43")
        her = memory.session("hers", platform="telegram", user_id="42")
        memory.change_memory("add", "user", "keeps a turtle", session=her)
        memory.change_memory(
            "add", "user", "likes rye", session=memory.session("his", platform="telegram", user_id="43")
        )
        assert memory.flush(10)
        preview = forget_user(memory, "telegram:42", dry_run=True)
        assert (preview.sessions, preview.messages, preview.notes) == (1, 2, 1)
        assert memory.sessions.get_session("hers")
        report = forget_user(memory, "telegram:42")
        assert report.turns == 1
        assert memory.flush(10)
        asked = [(given["user"], given["session"].id) for given in provider.of("forget_user")]
        assert [user for user, _ in asked] == ["telegram:42"] * 2
        assert asked[0][1] == "hers"
        assert not [given for given in provider.of("on_session_switch") if given["switch"].rewound_turns]
        removed = [given["write"] for hook, given in provider.calls if hook == "on_memory_write"]
        assert ("remove", "keeps a turtle") in [(write.action, write.previous) for write in removed]
        assert memory.sessions.get_session("his")
    for path in hermes_home.path.rglob("*"):
        if path.is_file():
            assert b"90210" not in path.read_bytes(), path
            assert b"turtle" not in path.read_bytes() or path.name == "state.db", path
    assert len(list(hermes_home.path.glob("memories/users/*/USER.md"))) == 1


def test_forget_reports_and_refuses_unknown_users(filled: HermesHome) -> None:
    refused = run("forget", "telegram:9", "--yes", code=1).stderr
    assert "nothing is stored of 'telegram:9' in this home; hermes-memory identity list" in refused
    assert "telegram:42" not in refused  # over HTTP a user reads this
    run("forget", "", "--yes", code=1)
    assert (
        "1 session, 2 messages, 0 notes would be deleted" in run("forget", "telegram:42", "--dry-run").stdout
    )
    output = run("forget", "telegram:42", "--yes").stdout
    assert "deleted: 1 session, 2 messages, 0 notes" in output
    assert "not deleted: " in output
    assert ids(filled) == {"old", "long", "his"}
    assert json.loads(run("forget", "telegram:43", "--yes", "--json").stdout)["sessions"] == 1


def command_at(words: list[str]) -> click.Command:
    command: click.Command = main
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command, obj={}), word)
        assert found is not None, words
        command = found
    return command


@pytest.mark.parametrize("word", sorted(HINTS))
def test_a_word_that_people_try_names_the_real_command(hermes_home: HermesHome, word: str) -> None:
    assert f"hermes-memory {HINTS[word]}" in run(word, code=2).stderr
    words = HINTS[word].split(" -")[0].split()
    command_at(words[:2])
    assert word not in COMMANDS
