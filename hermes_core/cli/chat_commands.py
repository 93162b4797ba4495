"""The slash commands of `hermes chat`."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import click

from hermes_core.agent.claims import Claim
from hermes_core.agent.loop import Agent
from hermes_core.cli.output import moment, print_table
from hermes_core.errors import SessionError
from hermes_core.kit.text import printable


class Quit(Exception):
    """The person leaves."""


@dataclass(slots=True)
class Chat:
    """A conversation in the terminal."""

    agent: Agent
    claim: Claim
    show_recall: bool = False

    @property
    def interactive(self) -> bool:
        """Whether a person sits there."""
        return sys.stdin.isatty()


def run_command(talk: Chat, line: str) -> None:
    """Run `/name argument`. Raises `SessionError` for a name that is none, with the one that is close."""
    name, _, argument = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        raise SessionError(
            f"there is no command /{name}", f"did you mean /{close[0]}?" if close else "see /help"
        )
    command[1](talk, argument.strip())


def _help(talk: Chat, argument: str) -> None:
    del talk, argument
    print_table("", ("command", "does"), [(f"/{name}", says) for name, (says, _) in COMMANDS.items()], "")


def _new(talk: Chat, argument: str) -> None:
    del argument
    talk.agent.new()
    _where(talk)


def _reset(talk: Chat, argument: str) -> None:
    del argument
    talk.agent.reset()
    _where(talk)


def _resume(talk: Chat, argument: str) -> None:
    if argument:
        talk.agent.resume(argument)
        _where(talk)
        return
    listed = talk.agent.memory.sessions.list_sessions(limit=15)
    rows = [
        (entry.session.id[:12], moment(entry.session.last_active), entry.session.title or entry.preview)
        for entry in listed
    ]
    print_table("", ("id", "last active", "title"), rows, "no sessions yet")


def _branch(talk: Chat, argument: str) -> None:
    del argument
    talk.agent.branch()
    _where(talk)


def _undo(talk: Chat, argument: str) -> None:
    if argument and not argument.isdigit():
        raise SessionError(
            f"/undo takes a number of turns, not {argument!r}", "without one it takes back the last"
        )
    said = talk.agent.undo(int(argument or 1))
    click.secho(f"taken back: {printable(said)}", dim=True)


def _undo_memory(talk: Chat, argument: str) -> None:
    del argument
    session = talk.agent.session
    result = talk.agent.memory.curated.of(session).undo(session=session)
    click.secho(result["message"] if result["success"] else result["error"], dim=True)


def _compress(talk: Chat, argument: str) -> None:
    del argument
    done = talk.agent.compress()
    click.secho("summarised" if done else "there was nothing to summarise", dim=True)


def _memory(talk: Chat, argument: str) -> None:
    del argument
    curated = talk.agent.memory.curated.of(talk.agent.session)
    rows = [(target, entry) for target in curated.enabled_targets for entry in curated.entries(target)]
    print_table("", ("file", "entry"), rows, "nothing is kept yet")


def _skills(talk: Chat, argument: str) -> None:
    del argument
    skills = talk.agent.skills
    found = skills.skills() if skills is not None else []
    rows = [(f"{skill.category}/{skill.name}", skill.document.description) for skill in found]
    print_table("", ("skill", "for"), rows, "no skills yet")
    for problem in skills.problems() if skills is not None else []:
        click.secho(f"warning: {printable(problem)}", fg="yellow", err=True)


def _recall(talk: Chat, argument: str) -> None:
    del argument
    talk.show_recall = not talk.show_recall
    click.secho(f"what is recalled is {'shown' if talk.show_recall else 'not shown'}", dim=True)


def _status(talk: Chat, argument: str) -> None:
    del argument
    agent = talk.agent
    rows = [
        ("session", agent.session.id),
        ("model", agent.model.name),
        ("messages", len(agent.history)),
        ("provider", agent.memory.selected or "built-in only"),
        *(("problem", problem) for problem in agent.memory.problems()),
    ]
    print_table("", ("what", "value"), rows, "")


def _quit(talk: Chat, argument: str) -> None:
    del talk, argument
    raise Quit


def _where(talk: Chat) -> None:
    click.secho(f"session {talk.agent.session.id[:12]}", dim=True)


COMMANDS: Mapping[str, tuple[str, Callable[[Chat, str], None]]] = {
    "help": ("this list", _help),
    "new": ("end this session and begin another", _new),
    "reset": ("as /new", _reset),
    "resume": ("go on with a session by id or title; without one, list them", _resume),
    "branch": ("go on in a copy of this session", _branch),
    "undo": ("take back the last turn, or the last N", _undo),
    "compress": ("summarise the conversation so far", _compress),
    "memory": ("show MEMORY.md and USER.md", _memory),
    "undo-memory": ("take back the last change of memory", _undo_memory),
    "skills": ("list the skills", _skills),
    "recall": ("show or hide what is recalled", _recall),
    "status": ("session, model and provider", _status),
    "quit": ("leave", _quit),
}
"""What each command does and runs, by its name."""
