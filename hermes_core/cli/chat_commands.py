"""The slash commands of `hermes-memory chat`."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import click

from hermes_core.agent import Agent
from hermes_core.agent.locks import SessionLock
from hermes_core.cli.output import moment, print_table, warn
from hermes_core.cli.voice import Voice
from hermes_core.curated.store import MemoryStore
from hermes_core.errors import CuratedMemoryError, SessionError
from hermes_core.memory import Memory
from hermes_core.safety.terminal import counted, printable

LAST = "last"


class Quit(Exception):
    """The person leaves."""


@dataclass(slots=True)
class Chat:
    """A conversation in the terminal."""

    agent: Agent
    claim: SessionLock
    show_recall: bool = False
    voice: Voice = field(default_factory=Voice)

    @property
    def interactive(self) -> bool:
        """Whether a person sits there."""
        return sys.stdin.isatty()


def is_command(line: str) -> bool:
    """Whether it is `/name` and what follows; a path is something to say.

    >>> is_command("/undo 2"), is_command("/etc/hosts is empty"), is_command("Undo it.")
    (True, False, False)
    """
    return re.match(r"/[^/\s]*(\s|$)", line) is not None


def run_command(talk: Chat, line: str) -> None:
    """Run `/name argument`, and say what of memory failed in it.

    Raises `SessionError` for a name that is none, with the one that is close.
    """
    given, argument = (*line[1:].split(maxsplit=1), "", "")[:2]
    name = given.lower()
    if name not in COMMANDS:
        begun = [one for one in COMMANDS if name and one.startswith(name)]
        close = begun or difflib.get_close_matches(name, COMMANDS, n=1)
        raise SessionError(
            f"there is no command /{name}", f"did you mean /{close[0]}?" if close else "see /help"
        )
    if argument and name not in _TAKE_ONE:
        raise SessionError(f"/{name} takes nothing, not {argument!r}", "see /help")
    known = len(talk.agent.problems)
    _, run = COMMANDS[name]
    run(talk, argument) if argument else run(talk)
    warn(talk.agent.problems[known:])


def _help(talk: Chat) -> None:
    del talk
    print_table("", ("command", "does"), [(f"/{name}", says) for name, (says, _) in COMMANDS.items()], "")


def _new(talk: Chat) -> None:
    talk.agent.new()
    where(talk)


def _reset(talk: Chat) -> None:
    talk.agent.reset()
    where(talk)


def _resume(talk: Chat, wanted: str = "") -> None:
    if wanted:
        talk.agent.resume(stored_session(talk.agent.memory, wanted, besides=talk.agent.session.id))
        where(talk)
        return
    sessions = talk.agent.memory.sessions.list_sessions(user="", limit=50)
    rows = [
        (_short(entry.session.id), moment(entry.session.last_active), entry.session.title or entry.preview)
        for entry in sessions
        if entry.session.id != talk.agent.session.id
    ][:15]
    print_table("", ("id", "last active", "title"), rows, "no other sessions yet")


def _branch(talk: Chat) -> None:
    talk.agent.branch()
    where(talk)


def _undo(talk: Chat, turns: str = "1") -> None:
    if not re.fullmatch(r"[1-9][0-9]{0,5}", turns):
        raise SessionError(
            f"/undo takes a number of turns, not {turns!r}", "without one it takes back the last"
        )
    said = talk.agent.undo(int(turns))
    click.secho(f"taken back: {printable(said)}", dim=True)


def _undo_memory(talk: Chat) -> None:
    session = talk.agent.session
    curated = talk.agent.memory.curated.of(session)
    before = _entries(curated)
    result = curated.undo(session=session)
    if not result["success"]:
        raise CuratedMemoryError(result["error"], result.get("remediation", ""))
    click.secho(printable(result["message"]), dim=True)
    after = _entries(curated)
    moved = [f"- {entry}" for entry in before if entry not in after]
    moved += [f"+ {entry}" for entry in after if entry not in before]
    for line in moved:
        click.secho(f"  {printable(line)}", dim=True)
    warn(filter(None, [result.get("warning")]))


def _undo_skill(talk: Chat) -> None:
    if talk.agent.skills is None:
        raise SessionError("skills are switched off", "set skills.enabled in config.yaml")
    taken = talk.agent.skills.undo(session_id=talk.agent.session.id)
    click.secho(f"taken back: {taken.action} of {printable(taken.path)}", dim=True)


def _compress(talk: Chat) -> None:
    done = talk.agent.compress()
    click.secho("summarised" if done else "nothing was summarised", dim=True)


def _memory(talk: Chat) -> None:
    curated = talk.agent.memory.curated.of(talk.agent.session)
    rows = [(target, entry) for target in curated.enabled_targets for entry in curated.entries(target)]
    empty = "nothing is kept yet" if curated.enabled_targets else "memory is switched off in config.yaml"
    print_table("", ("file", "entry"), rows, empty)


def _entries(curated: MemoryStore) -> list[str]:
    """All of it, with what can't be read left out."""
    readable = (target for target in curated.enabled_targets if target not in curated.problems())
    return [f"{target}: {entry}" for target in readable for entry in curated.entries(target)]


def _skills(talk: Chat) -> None:
    skills = talk.agent.skills
    if skills is None:
        click.echo("skills are switched off in config.yaml")
        return
    rows = [(f"{skill.category}/{skill.name}", skill.document.description) for skill in skills.skills()]
    print_table("", ("skill", "for"), rows, "no skills yet")
    warn(skills.problems())


def _recall(talk: Chat) -> None:
    talk.show_recall = not talk.show_recall
    click.secho(f"what is recalled is {'shown' if talk.show_recall else 'not shown'}", dim=True)


def _status(talk: Chat) -> None:
    agent = talk.agent
    rows = [
        ("session", agent.session.id),
        ("model", agent.model.name),
        ("messages", len(agent.history)),
        ("provider", agent.memory.selected or "built-in only"),
        *(("problem", problem) for problem in agent.memory.problems()),
    ]
    print_table("", ("what", "value"), rows, "")


def _quit(talk: Chat) -> None:
    del talk
    raise Quit


def stored_session(memory: Memory, wanted: str, besides: str = "") -> str:
    """The id of the session that the person names: its id, its beginning, a title, or `last`, the last with messages.

    Raises `SessionError`.
    """
    if wanted == LAST:
        listed = memory.sessions.list_sessions(source="cli", user="", limit=50)
        sessions = (entry.session for entry in listed)
        found = next((one for one in sessions if one.id != besides), None)
    else:
        found = memory.sessions.find_session(wanted, user="") or memory.sessions.find_session(wanted)
    if found is None:
        which = f"session {wanted!r}" if wanted != LAST else "other chat" if besides else "chat"
        more = " with messages" if wanted == LAST else ""
        raise SessionError(f"there is no {which}{more}", "list them with `hermes-memory sessions list`")
    if found.user:
        raise SessionError(f"session {wanted!r} is {found.user}'s", "`hermes-memory sessions show` shows it")
    return found.id


def where(talk: Chat) -> None:
    """Say which session this is, and take hold of it."""
    session, said = talk.agent.session, len(talk.agent.history)
    stored = talk.agent.memory.sessions.get_session(session.id)
    title = f" {printable(stored.title)!r}," if stored is not None and stored.title else ""
    holds = f"{title} {counted(said, 'message')}" if said else ""
    click.secho(f"session {_short(session.id)}{holds}", dim=True, err=True)
    hold(talk)


def _short(session_id: str) -> str:
    """As much of an id as names the session: ids of an import begin alike."""
    return session_id[:12] if re.fullmatch("[0-9a-f]{32}", session_id) else session_id


def hold(talk: Chat) -> None:
    """Take hold of the session; say so when another process has it."""
    if not talk.claim.move(talk.agent.session.id):
        warn(["this session is open in another process too; what is said there is not seen here"])


COMMANDS: Mapping[str, tuple[str, Callable[..., None]]] = {
    "help": ("this list", _help),
    "new": ("end this session and begin another", _new),
    "reset": ("as /new", _reset),
    "resume": ("go on with a session by id or title, or the `last`; without one, list them", _resume),
    "branch": ("go on in a copy of this session", _branch),
    "undo": ("take back the last turn, or the last N", _undo),
    "compress": ("summarise the conversation so far", _compress),
    "memory": ("show MEMORY.md and USER.md", _memory),
    "undo-memory": ("take back the last change of memory", _undo_memory),
    "skills": ("list the skills", _skills),
    "undo-skill": ("take back the last change of a skill", _undo_skill),
    "recall": ("show or hide what is recalled", _recall),
    "status": ("session, model and provider", _status),
    "quit": ("leave", _quit),
    "exit": ("the same as /quit", _quit),
}
"""What each command does and runs, by its name."""

_TAKE_ONE = frozenset({"resume", "undo"})
