"""A day of an agent as steps, which a program takes one by one, and what a home must hold after each of them.

Three people talk with one agent and have notes of their own: turns, notes that are added, replaced, removed and undone, turns
that are undone, a home that is closed and opened again. A provider is told of all of it. The person at home also edits
MEMORY.md by hand, imports conversations, and has skills.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hermes_core import Conversation, HermesHome, Memory, open_memory
from hermes_core.config import load_config, set_value
from hermes_core.home import file_name_of
from hermes_memory_agent.skills.store import SkillStore, open_skills
from tests.e2e.conftest import FILER
from tests.faults.notes_of import run

FAST = 100.0
"""So many times as fast as the time of day passes the time of pauses before a provider is called again."""

DELIVERY_TIMEOUT_S = 120.0

HELD_S = 30.0
"""Seconds within which a server lets go of a row that a killed program held."""

USERS = ("", "telegram:ann", "telegram:bob")
"""The person at home, and two users of a gateway."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a program.

    Attributes:
        kind: A turn or its undoing (rewind), a change of the notes (note, replace, remove, or an edit of the file by the person)
            or its undoing (undo), an import of a conversation, a change of a skill (create, patch, delete) or its undoing
            (take back), or reopen.
        user: One of `USERS`.
        text: The new text.
        old: The text that is replaced or removed.
        skill: The name of the skill.
    """

    kind: str
    user: str = ""
    text: str = ""
    old: str = ""
    skill: str = ""


@dataclass
class State:
    """Notes and turns by user, oldest first, the imported conversations, and the texts of skills by their names.

    Attributes:
        by_hand: Entries that the person wrote into MEMORY.md between two programs, see `edit_by_hand`.
    """

    notes: dict[str, list[str]] = field(default_factory=lambda: {user: [] for user in USERS})
    turns: dict[str, list[str]] = field(default_factory=lambda: {user: [] for user in USERS})
    imports: list[str] = field(default_factory=list)
    skills: dict[str, str] = field(default_factory=dict)
    by_hand: list[str] = field(default_factory=list)
    before: dict[str, list[str]] = field(default_factory=dict, compare=False)
    skills_before: dict[str, str] = field(default_factory=dict, compare=False)

    def after(self, step: Step) -> State:
        """Return the state after a step."""
        state = copy.deepcopy(self)
        notes, turns = state.notes.get(step.user, []), state.turns.get(step.user, [])
        if step.kind in CHANGES:
            state.before[step.user] = list(notes)
        if step.kind in SKILL_CHANGES:
            state.skills_before = dict(state.skills)
        match step.kind:
            case "turn":
                turns.append(step.text)
            case "rewind":
                turns.pop()
            case "note" | "edit":
                notes.append(step.text)
            case "import":
                state.imports = sorted([*state.imports, step.text])
            case "replace":
                notes[notes.index(step.old)] = step.text
            case "remove":
                notes.remove(step.old)
            case "undo":
                notes[:] = state.before[step.user]
            case "create" | "patch":
                state.skills[step.skill] = step.text
            case "delete":
                del state.skills[step.skill]
            case "take back":
                state.skills = dict(state.skills_before)
        return state

    def of(self, users: Sequence[str]) -> State:
        """Return the part of the state that belongs to some users.

        Imports, skills and entries by hand belong to the person at home.
        """
        at_home = "" in users
        return State(
            {user: self.notes[user] for user in users},
            {user: self.turns[user] for user in users},
            self.imports if at_home else [],
            self.skills if at_home else {},
            self.by_hand if at_home else [],
        )


CHANGES = ("note", "replace", "remove", "edit")
SKILL_CHANGES = ("create", "patch", "delete")


def plan(
    seed: int, count: int, users: Sequence[str] = USERS, *, files: bool = False, edits: bool = False
) -> list[Step]:
    """Return so many steps, always the same for the same arguments.

    Args:
        files: True for imports of files too.
        edits: True for edits of MEMORY.md by the person too. They are lost if the power fails.
    """
    chance, state, steps = random.Random(seed), State(), list[Step]()
    while len(steps) < count:
        user, number = chance.choice(users), len(steps)
        notes, turns = state.notes[user], state.turns[user]
        options = [Step("turn", user, f"Question {number}: " + "harbour " * chance.choice((1, 20, 400)))] * 4
        options += [Step("note", user, f"Note {number} of the harbour")] * 4
        if notes:
            options += [Step("replace", user, f"Note {number} in its place", chance.choice(notes))]
            options += [Step("remove", user, "", chance.choice(notes))]
        if steps and steps[-1].kind in CHANGES:
            options += [Step("undo", steps[-1].user)] * 2
        if turns:
            options += [Step("rewind", user)]
        if not user:
            options += [Step("edit", "", f"Edit {number} of the harbour")] * (3 * edits)
            options += [Step("import", "", f"import-{seed}-{number}")] * (2 * files)
            options += skill_steps(state.skills, number, chance)
            if steps and steps[-1].kind in SKILL_CHANGES:
                options += [Step("take back")] * 2
        options += [Step("reopen")] * (number % 8 == 7)
        steps.append(chance.choice(options))
        state = state.after(steps[-1])
    return steps


def skill_steps(skills: Mapping[str, str], number: int, chance: random.Random) -> list[Step]:
    """Return steps that change a skill, to choose from."""
    options = [Step("create", "", f"{number}. Look at the harbour.", skill=f"skill-{number}")]
    if skills:
        name = chance.choice(sorted(skills))
        options += [Step("patch", "", f"{number}. Ask the harbour master.", skills[name], name)]
        options += [Step("delete", skill=name)]
    return options


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
                command("memory", "undo", *who)
            case "edit":
                self._edit(step.text)
            case "import":
                path = self._home.path.with_name(f"{step.text}.jsonl")
                lines = [
                    {"session": step.text, "role": role, "content": text}
                    for role, text in imported(step.text)
                ]
                path.write_text("\n".join(map(json.dumps, lines)))
                command("import", str(path))
            case "create":
                self._skills().create(step.skill, "work", skill_text(step.skill, step.text))
            case "patch":
                self._skills().patch(step.skill, step.old, step.text)
            case "delete":
                self._skills().delete(step.skill)
            case "take back":
                command("skills", "undo")
            case "reopen":
                self.close()
                self._memory = open_fast(self._home)
            case kind:
                action = "add" if kind == "note" else kind
                answer = chat.change_memory(action, "memory", step.text, step.old)
                assert answer["success"], answer
                assert "warning" not in answer, answer

    def _edit(self, text: str) -> None:
        """Look at the notes, then add an entry to MEMORY.md in an editor."""
        shown = run("memory", "show", "--json")
        assert shown.exit_code == 0, shown.output
        save(self._home.memory_md, [*entries_of(self._home.memory_md), text])

    def _skills(self) -> SkillStore:
        return open_skills(self._home, load_config(self._home), self._memory.sessions.database)

    def close(self) -> None:
        """Close the home."""
        self._memory.close()


def save(file: Path, entries: Sequence[str]) -> None:
    """Save entries as an editor does: with blank lines and a last newline, in one rename."""
    new = file.parents[1] / "of-the-editor"
    new.write_text("\n\n§\n\n".join(entries) + "\n")
    file.parent.mkdir(exist_ok=True)
    new.replace(file)


def edit_by_hand(home: HermesHome, by_hand: list[str], number: int, chance: random.Random) -> None:
    """Let the person add, change or remove an entry of theirs in MEMORY.md as it is now, and update the list of these.

    No program looks at the file before: it may lack a change whose program was killed, or hold one that is not recorded.
    """
    entries, new = entries_of(home.memory_md), f"Hand {number} of the harbour"
    old = chance.choice(by_hand) if by_hand else ""
    match chance.choice(("add", "add", "change", "remove")) if old else "add":
        case "add":
            by_hand.append(new)
            entries.append(new)
        case "change":
            by_hand[by_hand.index(old)] = entries[entries.index(old)] = new
        case _:
            by_hand.remove(old)
            entries.remove(old)
    save(home.memory_md, entries)


def skill_text(name: str, body: str) -> str:
    """Return the text of a skill."""
    return f"---\nname: {name}\ndescription: Do {name} well.\n---\n{body}\n"


def command(*words: str) -> None:
    """Run a command. It exits with 3 if the provider can't be told yet: a program that was killed has its lease."""
    done = run(*words)
    assert done.exit_code in (0, 3), done.output


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
        # A server holds the row of a killed program for a while; the file is written at the first look after that.
        until = time.monotonic() + HELD_S
        while True:
            shown = run("memory", "show", "--origin", "--json", *who)
            assert shown.exit_code == 0, shown.output
            entries = [note["entry"] for note in json.loads(shown.stdout)["memory"]]
            # What the person has saved stays in their form until the next change.
            if entries_of(view_of(home, user)) == entries:
                break
            assert time.monotonic() < until, user
        state.by_hand += [entry for entry in entries if entry.startswith("Hand")]
        state.notes[user] = [entry for entry in entries if not entry.startswith("Hand")]
        messages = messages_of(name_of(user))
        state.turns[user] = [text for role, text in messages if role == "user"]
        assert messages == [message for one in state.turns[user] for message in turn_of(one)], messages
    listed = json.loads(run("sessions", "list", "--json", "--limit", "10000").stdout)
    for session in (one["session"]["id"] for one in listed if one["session"]["end_reason"] == "import"):
        name = session.removeprefix("jsonl-").rpartition("-")[0]
        messages = messages_of(session)
        # An import that was ended brings the rest when it is run again.
        assert messages == imported(name)[: len(messages)], messages
        state.imports = sorted(state.imports + [name] * (len(messages) == len(imported(name))))
    for skill in json.loads(run("skills", "list", "--json").stdout):
        text = json.loads(run("skills", "show", skill["name"], "--json").stdout)["text"]
        state.skills[skill["name"]] = text.removesuffix("\n").rpartition("\n")[2]
        assert text == skill_text(skill["name"], state.skills[skill["name"]])
    return state


def view_of(home: HermesHome, user: str) -> Path:
    """Return the path of the MEMORY.md of a user."""
    return home.memories / "users" / file_name_of(user) / "MEMORY.md" if user else home.memory_md


def entries_of(file: Path) -> list[str]:
    """Return the entries of a file; none if it does not exist."""
    text = file.read_text() if file.exists() else ""
    return [entry.strip() for entry in text.split("§") if entry.strip()]


def messages_of(session: str) -> list[tuple[str, str]]:
    """Return the messages of a session; none if there is no such session."""
    known = run("sessions", "show", session, "--json")
    if known.exit_code:
        assert "no session" in known.output, known.output
        return []
    return [(one["role"], one["content"]) for one in json.loads(known.stdout)]


def imported(name: str) -> list[tuple[str, str]]:
    """Return the messages of a conversation that is imported."""
    return [message for n in range(3) for message in turn_of(f"{name} question {n}")]


def turn_of(question: str) -> list[tuple[str, str]]:
    """Return the messages of a turn."""
    return [("user", question), ("assistant", f"Answer to {question}")]


def diagnose(*, server: bool = False) -> None:
    """Assert that the stores are whole, and that nobody changed the record of notes.

    Args:
        server: True if the stores are on a server of the tests, which is set up for speed: the doctor would say so.
    """
    if server:
        assert json.loads(run("sessions", "check", "--json").stdout)["faults"] == []
    else:
        found = json.loads(run("doctor", "--json").stdout)
        assert found["works"], [one for one in found["findings"] if one["state"] == "failed"]
    verified = run("verify")
    assert verified.exit_code == 0, verified.output


def deliver(home: HermesHome, state: State) -> None:
    """Deliver what waits, and assert that the provider was told of each note and turn of the state.

    Also of those that were not acknowledged: they are stored with what is to be delivered, or not at all.
    """
    with contextlib.closing(open_fast(home)) as memory:
        for user in USERS:
            _ = conversation(memory, user).system_prompt
        # The lease of a program that was killed has to end first.
        until = time.monotonic() + DELIVERY_TIMEOUT_S
        while not memory.flush(60):
            assert time.monotonic() < until, "the provider has not been told of all"
    # A cut in the middle of the provider's own write leaves the beginning of a line before the next one.
    lines = (home.path / "taken.jsonl").read_text(errors="replace").splitlines()
    calls = [json.loads(line[line.rindex('{"kind"') :]) for line in lines if line.endswith("}")]
    for kind, stored in (("turn", state.turns), ("write", state.notes)):
        taken = {call["text"] for call in calls if call["kind"] == kind}
        # Edits of the person are in the files, and no provider is told of them.
        texts = {text for user in USERS for text in stored[user] if not text.startswith("Edit")}
        missing = texts - taken
        assert not missing, f"the provider has no {kind} {missing}"
