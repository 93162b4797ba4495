"""A day of an agent as steps, which a program takes one by one, and what a home must hold after each of them.

Three people talk with one agent and have notes of their own: turns, notes that are added, replaced, removed and undone, turns
that are undone, a home that is closed and opened again. A provider is told of all of it.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from hermes_core import Conversation, HermesHome, Memory, open_memory
from hermes_core.config import set_value
from tests.e2e.conftest import FILER
from tests.faults.notes_of import DELIMITER, run

FAST = 100.0
"""So many times as fast as the time of day passes the time of pauses before a provider is called again."""

USERS = ("", "telegram:ann", "telegram:bob")
"""The person at home, and two users of a gateway."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a program.

    Attributes:
        kind: A turn or its undoing (rewind), a change of the notes (note, replace, remove) or its undoing (undo), or reopen.
        user: One of `USERS`.
        text: The new text.
        old: The text that is replaced or removed.
    """

    kind: str
    user: str = ""
    text: str = ""
    old: str = ""


@dataclass
class State:
    """Notes and turns by user, oldest first."""

    notes: dict[str, list[str]] = field(default_factory=lambda: {user: [] for user in USERS})
    turns: dict[str, list[str]] = field(default_factory=lambda: {user: [] for user in USERS})
    before: dict[str, list[str]] = field(default_factory=dict, compare=False)

    def after(self, step: Step) -> State:
        """Return the state after a step."""
        state = copy.deepcopy(self)
        notes, turns = state.notes.get(step.user, []), state.turns.get(step.user, [])
        if step.kind in ("note", "replace", "remove"):
            state.before[step.user] = list(notes)
        match step.kind:
            case "turn":
                turns.append(step.text)
            case "rewind":
                turns.pop()
            case "note":
                notes.append(step.text)
            case "replace":
                notes[notes.index(step.old)] = step.text
            case "remove":
                notes.remove(step.old)
            case "undo":
                notes[:] = state.before[step.user]
        return state


def plan(seed: int, count: int) -> list[Step]:
    """Return so many steps, always the same for a seed."""
    chance, state, steps = random.Random(seed), State(), list[Step]()
    while len(steps) < count:
        user, number = chance.choice(USERS), len(steps)
        notes, turns = state.notes[user], state.turns[user]
        options = [Step("turn", user, f"Question {number}: " + "harbour " * chance.choice((1, 20, 400)))] * 4
        options += [Step("note", user, f"Note {number} of the harbour")] * 4
        if notes:
            options += [Step("replace", user, f"Note {number} in its place", chance.choice(notes))]
            options += [Step("remove", user, "", chance.choice(notes))]
        if steps and steps[-1].kind in ("note", "replace", "remove"):
            options += [Step("undo", steps[-1].user)] * 2
        if turns:
            options += [Step("rewind", user)]
        options += [Step("reopen")] * (number % 8 == 7)
        steps.append(chance.choice(options))
        state = state.after(steps[-1])
    return steps


def states(steps: Sequence[Step]) -> list[State]:
    """Return the state before the first step, and after each."""
    result = [State()]
    for step in steps:
        result.append(result[-1].after(step))
    return result


# --------------------------------------------------------------------------------------------------------- the program


def open_fast(home: HermesHome) -> Memory:
    """Open a home in which a provider that failed is called again soon."""
    return open_memory(home, clock=lambda: time.monotonic() * FAST)


def prepare(home: HermesHome) -> None:
    """Make a home with room for notes of several users, and a provider that stores each call as a line of a file."""
    folder = home.plugins / "filer"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(FILER)
    set_value(home, "memory.memory_char_limit", 1_000_000)
    set_value(home, "memory.per_user", True)
    set_value(home, "memory.provider", "filer")
    (home.path / "taken.jsonl").touch()


class Program:
    """A program that takes steps."""

    def __init__(self, home: HermesHome) -> None:
        self._home = home
        self._memory = open_fast(home)

    def take(self, step: Step) -> None:
        """Take a step. It is acknowledged when this returns."""
        chat = conversation(self._memory, step.user)
        match step.kind:
            case "turn":
                chat.turn(step.text).finish(f"Answer to {step.text}")
            case "rewind":
                chat.rewind(1)
            case "undo":
                who = ["--user", step.user] if step.user else []
                done = run("memory", "undo", *who)
                assert done.exit_code == 0, done.output
            case "reopen":
                self.close()
                self._memory = open_fast(self._home)
            case kind:
                action = "add" if kind == "note" else kind
                words = {"action": action, "target": "memory", "content": step.text, "old_text": step.old}
                answer = chat.call_tool("memory", {name: word for name, word in words.items() if word})
                assert answer.ok, answer.error
                assert "warning" not in json.loads(answer.text), answer.text

    def close(self) -> None:
        """Close the home."""
        self._memory.close()


def conversation(memory: Memory, user: str) -> Conversation:
    """Return the conversation with a user."""
    platform, _, user_id = user.partition(":")
    return memory.conversation(name_of(user), platform=platform or "cli", user_id=user_id)


def name_of(user: str) -> str:
    """Return the id of the session of a user."""
    return f"session-{user.replace(':', '-') or 'home'}"


# --------------------------------------------------------------------------------------------------- what a home holds


def read(home: HermesHome) -> State:
    """Return the state of a home as commands print it. The files of notes hold the same entries."""
    state = State()
    for user in USERS:
        who = ["--user", user] if user else []
        shown = run("memory", "show", "--origin", "--json", *who)
        assert shown.exit_code == 0, shown.output
        notes = json.loads(shown.stdout)["memory"]
        assert {note["origin"] for note in notes} <= {"assistant"}, notes
        state.notes[user] = [note["entry"] for note in notes]
        known = run("sessions", "show", name_of(user), "--json")
        if known.exit_code == 0:
            messages = [(one["role"], one["content"]) for one in json.loads(known.stdout)]
            questions = [text for role, text in messages if role == "user"]
            answered = [(role, text) for one in questions for role, text in turn_of(one)]
            assert messages == answered, messages
            state.turns[user] = questions
        else:
            assert "no session" in known.output, known.output
    expected = DELIMITER.join(state.notes[""])
    assert (home.memory_md.read_text() if home.memory_md.exists() else "") == expected
    return state


def turn_of(question: str) -> list[tuple[str, str]]:
    """Return the messages of a turn."""
    return [("user", question), ("assistant", f"Answer to {question}")]


def diagnose() -> None:
    """Assert that the doctor finds nothing, and that nobody changed the record of notes."""
    found = json.loads(run("doctor", "--json").stdout)
    assert found["works"], [one for one in found["findings"] if one["state"] == "failed"]
    verified = run("verify")
    assert verified.exit_code == 0, verified.output


def deliver(home: HermesHome, state: State, acknowledged: State) -> None:
    """Deliver what waits, and assert that the provider was told of each note and turn of the state that was acknowledged."""
    with contextlib.closing(open_fast(home)) as memory:
        for user in USERS:
            _ = conversation(memory, user).system_prompt
        assert memory.flush(60)
    # A cut in the middle of the provider's own write leaves the beginning of a line before the next one.
    lines = (home.path / "taken.jsonl").read_text(errors="replace").splitlines()
    calls = [json.loads(line[line.rindex('{"kind"') :]) for line in lines if line.endswith("}")]
    for kind, there, known in (
        ("turn", state.turns, acknowledged.turns),
        ("write", state.notes, acknowledged.notes),
    ):
        taken = {call["text"] for call in calls if call["kind"] == kind}
        missing = {text for user in USERS for text in there[user] if text in known[user]} - taken
        assert not missing, f"the provider has no {kind} {missing}"
