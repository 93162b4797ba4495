"""The conversation of `hermes-memory chat` in a terminal, and its slash commands."""

from __future__ import annotations

import difflib
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import click

from hermes_core.agent import Agent, ToolRequest
from hermes_core.agent.locks import SessionLock
from hermes_core.cli.output import moment, print_table, warn
from hermes_core.curated.store import MemoryStore
from hermes_core.errors import CuratedMemoryError, SessionError
from hermes_core.memory import Memory
from hermes_core.safety.terminal import counted, printable
from hermes_core.sessions.records import PROGRAM_SOURCES

LAST = "last"


class Quit(Exception):
    """The end of the chat, as the person asked."""


class TerminalWriter:
    """The output of a chat: the answer as it streams, and whole lines beside it.

    `turn` is held during an answer, so that a background thread waits for its end before it prints. With `tools` the names
    of called tools are shown.
    """

    def __init__(self, *, tools: bool = False) -> None:
        self.turn = threading.Lock()
        self._out = sys.stdout
        self._tools = tools
        self._open_line = False

    def write(self, text: str) -> None:
        """Print the next piece of the answer."""
        click.echo(printable(text), file=self._out, nl=False)
        self._open_line = not text.endswith("\n")

    def end_line(self) -> None:
        """End the current line, if there is one."""
        if self._open_line:
            click.echo(file=self._out)
        self._open_line = False

    def note_tool_call(self, request: ToolRequest, result: str) -> None:
        """Begin a new paragraph after a tool call, and show the tool's name."""
        del result
        self.end_line()
        if self._tools:
            self.note(f"[{request.name}]")

    def note(self, text: str) -> None:
        """Print a line that is no part of the answer."""
        click.secho(printable(text), dim=True, err=True)


@dataclass(slots=True)
class TerminalChat:
    """A conversation in the terminal: the agent, the lock on its session, and the output."""

    agent: Agent
    lock: SessionLock
    show_recall: bool = False
    writer: TerminalWriter = field(default_factory=TerminalWriter)

    @property
    def interactive(self) -> bool:
        """True if a person types the messages."""
        return sys.stdin.isatty()


def is_command(line: str) -> bool:
    """Return True for `/name` with or without an argument; a path is a message.

    >>> is_command("/undo 2"), is_command("/etc/hosts is empty"), is_command("Undo it.")
    (True, False, False)
    """
    return re.match(r"/[^/\s]*(\s|$)", line) is not None


def run_command(chat: TerminalChat, line: str) -> None:
    """Run `/name argument`, and print the failures of memory in it.

    Raises `SessionError` for an unknown name, with the name that is close to it.
    """
    typed, argument = (*line[1:].split(maxsplit=1), "", "")[:2]
    name = typed.lower()
    others = chat.agent.memory.extras.chat_commands
    if name not in COMMANDS and name in others:
        if text := others[name].run(argument):
            click.echo(printable(text))
        return
    if name not in COMMANDS:
        known = [*COMMANDS, *others]
        longer = [command for command in known if name and command.startswith(name)]
        close = longer or difflib.get_close_matches(name, known, n=1)
        raise SessionError(
            f"there is no command /{name}", f"did you mean /{close[0]}?" if close else "see /help"
        )
    if argument and name not in _WITH_ARGUMENT:
        raise SessionError(f"/{name} takes nothing, not {argument!r}", "see /help")
    count = len(chat.agent.problems)
    _, run = COMMANDS[name]
    run(chat, argument) if argument else run(chat)
    warn(chat.agent.problems[count:])


def _help(chat: TerminalChat) -> None:
    others = chat.agent.memory.extras.chat_commands.items()
    rows = [
        *((f"/{name}", says) for name, (says, _) in COMMANDS.items()),
        *((f"/{name}", other.description) for name, other in others if name not in COMMANDS),
    ]
    print_table("", ("command", "does"), rows, "")


def _new(chat: TerminalChat) -> None:
    chat.agent.new()
    show_session(chat)


def _reset(chat: TerminalChat) -> None:
    chat.agent.reset()
    show_session(chat)


def _resume(chat: TerminalChat, wanted: str = "") -> None:
    if wanted:
        chat.agent.resume(stored_session(chat.agent.memory, wanted, besides=chat.agent.session.id))
        show_session(chat)
        return
    db = chat.agent.memory.sessions
    rows = [
        (
            db.short_id(entry.session.id),
            moment(entry.session.last_active),
            entry.session.title or entry.preview,
        )
        for entry in db.list_sessions(exclude_sources=PROGRAM_SOURCES, user="", limit=50)
        if entry.session.id != chat.agent.session.id
    ][:15]
    print_table("", ("id", "last active", "title"), rows, "no other sessions yet")


def _branch(chat: TerminalChat) -> None:
    chat.agent.branch()
    show_session(chat)


def _undo(chat: TerminalChat, turns: str = "1") -> None:
    if not re.fullmatch(r"[1-9][0-9]{0,5}", turns):
        raise SessionError(
            f"/undo takes a number of turns, not {turns!r}", "without a number it undoes the last turn"
        )
    message = chat.agent.undo(int(turns))
    click.secho(f"undone: {printable(message)}", dim=True)


def _undo_memory(chat: TerminalChat) -> None:
    session = chat.agent.session
    curated = chat.agent.memory.curated.of(session)
    before = _entries(curated)
    result = curated.undo(session=session)
    if not result["success"]:
        raise CuratedMemoryError(result["error"], result.get("remediation", ""))
    click.secho(printable(result["message"]), dim=True)
    after = _entries(curated)
    changes = [f"- {entry}" for entry in before if entry not in after]
    changes += [f"+ {entry}" for entry in after if entry not in before]
    for line in changes:
        click.secho(f"  {printable(line)}", dim=True)
    warn(filter(None, [result.get("warning")]))


def _undo_skill(chat: TerminalChat) -> None:
    if chat.agent.skills is None:
        raise SessionError("skills are switched off", "set skills.enabled in config.yaml")
    change = chat.agent.skills.undo(session_id=chat.agent.session.id)
    click.secho(f"undone: {change.action} of {printable(change.path)}", dim=True)


def _compress(chat: TerminalChat) -> None:
    done = chat.agent.compress()
    click.secho("summarised" if done else "nothing was summarised", dim=True)


def _memory(chat: TerminalChat) -> None:
    curated = chat.agent.memory.curated.of(chat.agent.session)
    rows = [(target, entry) for target in curated.enabled_targets for entry in curated.entries(target)]
    empty = "nothing is kept yet" if curated.enabled_targets else "memory is switched off in config.yaml"
    print_table("", ("file", "entry"), rows, empty)


def _entries(curated: MemoryStore) -> list[str]:
    """Return all entries of files that can be read."""
    readable = (target for target in curated.enabled_targets if target not in curated.problems())
    return [f"{target}: {entry}" for target in readable for entry in curated.entries(target)]


def _skills(chat: TerminalChat) -> None:
    skills = chat.agent.skills
    if skills is None:
        click.echo("skills are switched off in config.yaml")
        return
    rows = [(f"{skill.category}/{skill.name}", skill.document.description) for skill in skills.skills()]
    print_table("", ("skill", "for"), rows, "no skills yet")
    warn(skills.problems())


def _recall(chat: TerminalChat) -> None:
    chat.show_recall = not chat.show_recall
    click.secho(f"what is recalled is {'shown' if chat.show_recall else 'not shown'}", dim=True)


def _status(chat: TerminalChat) -> None:
    agent = chat.agent
    rows = [
        ("session", agent.session.id),
        ("model", agent.model.name),
        ("messages", len(agent.history)),
        ("provider", agent.memory.selected or "built-in only"),
        *(("problem", problem) for problem in agent.memory.problems()),
    ]
    print_table("", ("what", "value"), rows, "")


def _quit(chat: TerminalChat) -> None:
    del chat
    raise Quit


def stored_session(memory: Memory, wanted: str, besides: str = "") -> str:
    """Return the id of the session that the person names: by its id, the beginning of it, a title, or `last`.

    `last` is the last chat with messages, other than the session `besides`. Raises `SessionError` if there is none.
    """
    if wanted == LAST:
        listed = memory.sessions.list_sessions(source="cli", user="", limit=50)
        sessions = (entry.session for entry in listed)
        match = next((session for session in sessions if session.id != besides), None)
    else:
        match = memory.sessions.find_session(wanted, user="") or memory.sessions.find_session(wanted)
    if match is None:
        which = f"session {wanted!r}" if wanted != LAST else "other chat" if besides else "chat"
        more = " with messages" if wanted == LAST else ""
        raise SessionError(f"there is no {which}{more}", "list them with `hermes-memory sessions list`")
    if match.user:
        raise SessionError(f"session {wanted!r} is {match.user}'s", "`hermes-memory sessions show` shows it")
    return match.id


def show_session(chat: TerminalChat) -> None:
    """Print which session this is, and lock it."""
    session, count = chat.agent.session, len(chat.agent.history)
    stored = chat.agent.memory.sessions.get_session(session.id)
    title = f" {printable(stored.title)!r}," if stored is not None and stored.title else ""
    holds = f"{title} {counted(count, 'message')}" if count else ""
    click.secho(
        f"session {printable(chat.agent.memory.sessions.short_id(session.id))}{holds}", dim=True, err=True
    )
    lock_session(chat)


def lock_session(chat: TerminalChat) -> None:
    """Lock the session; warn if another process has it open."""
    if not chat.lock.move(chat.agent.session.id):
        warn(["this session is open in another process too; what is said there is not seen here"])


COMMANDS: Mapping[str, tuple[str, Callable[..., None]]] = {
    "help": ("this list", _help),
    "new": ("end this session and begin another", _new),
    "reset": ("as /new", _reset),
    "resume": ("go on with a session by id or title, or the `last`; without one, list them", _resume),
    "branch": ("go on in a copy of this session", _branch),
    "undo": ("undo the last turn, or the last N", _undo),
    "compress": ("summarise the conversation so far", _compress),
    "memory": ("show MEMORY.md and USER.md", _memory),
    "undo-memory": ("undo the last change of memory", _undo_memory),
    "skills": ("list the skills", _skills),
    "undo-skill": ("undo the last change of a skill", _undo_skill),
    "recall": ("show or hide what is recalled", _recall),
    "status": ("session, model and provider", _status),
    "quit": ("leave", _quit),
    "exit": ("the same as /quit", _quit),
}
"""The description and the function of each command."""

_WITH_ARGUMENT = frozenset({"resume", "undo"})
