"""The slash commands of `hermes-memory chat`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import partial

import click

from hermes_core import Memory, Notes
from hermes_core.cli.output import moment, print_table, warn
from hermes_core.cli.review import ReviewDialog
from hermes_core.cli.sessions import print_hits
from hermes_core.errors import CuratedMemoryError, ModelError, SessionError
from hermes_core.kit import printable, redact
from hermes_core.sessions.records import PROGRAM_SOURCES
from hermes_memory_agent import OpenAIModel, TurnResult
from hermes_memory_agent.cli.chat_terminal import TerminalChat

LAST = "last"


class Quit(Exception):
    """The end of the chat, as the person asked."""


def is_command(line: str) -> bool:
    """Return True for `/name` with or without an argument; a path is a message.

    >>> is_command("/undo 2"), is_command("/etc/hosts is empty"), is_command("Undo it.")
    (True, False, False)
    """
    return re.match(r"/[^/\s]*(\s|$)", line) is not None


def run_command(chat: TerminalChat, line: str) -> TurnResult | None:
    """Run `/name argument`, and print the failures of memory in it; return the turn that a command ran.

    Raises `SessionError` for an unknown name, with the name that is close to it.
    """
    typed, argument = (*line[1:].split(maxsplit=1), "", "")[:2]
    name = typed.lower()
    others = chat.agent.memory.internals.selection.extras.chat_commands
    if name not in COMMANDS and name in others:
        if text := others[name].run(argument):
            click.echo(printable(text))
        return None
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
    result = run(chat, argument) if argument else run(chat)
    warn(chat.agent.problems[count:])
    return result


def _help(chat: TerminalChat) -> None:
    others = chat.agent.memory.internals.selection.extras.chat_commands.items()
    rows = [
        *((f"/{name}", says) for name, (says, _) in COMMANDS.items()),
        *((f"/{name}", other.description) for name, other in others if name not in COMMANDS),
    ]
    print_table("", ("command", "does"), rows, "")


def _new(chat: TerminalChat) -> None:
    chat.agent.new()
    chat.show_session()


def _reset(chat: TerminalChat) -> None:
    chat.agent.reset()
    chat.show_session()


def _resume(chat: TerminalChat, wanted: str = "") -> None:
    if wanted:
        chat.agent.resume(stored_session(chat.agent.memory, wanted, besides=chat.agent.session.id))
        chat.show_session()
        return
    db = chat.agent.memory.sessions
    rows = [
        (
            db.meta.short_id(entry.session.id),
            moment(entry.session.last_active),
            entry.session.title or entry.preview,
        )
        for entry in db.list_sessions(exclude_sources=PROGRAM_SOURCES, user="", limit=50)
        if entry.session.id != chat.agent.session.id
    ][:15]
    print_table("", ("id", "last active", "title"), rows, "no other sessions yet")


def _branch(chat: TerminalChat) -> None:
    chat.agent.branch()
    chat.show_session()


def _undo(chat: TerminalChat, turns: str = "1") -> None:
    if not re.fullmatch(r"[1-9][0-9]{0,5}", turns):
        raise SessionError(
            f"/undo takes a number of turns, not {turns!r}", "without a number it undoes the last turn"
        )
    message = chat.agent.undo(int(turns))
    click.secho(f"undone: {printable(message)}", dim=True)


def _retry(chat: TerminalChat) -> TurnResult:
    message = chat.agent.undo()
    chat.writer.note(f"again: {message}")
    return chat.answer(message)


def _title(chat: TerminalChat, text: str = "") -> None:
    db, session_id = chat.agent.memory.sessions, chat.agent.session.id
    stored = db.get_session(session_id)
    title = db.meta.set_title(session_id, text) if text else stored.title if stored is not None else ""
    click.secho(f"title: {printable(title)}" if title else "no title yet", dim=True)


def _search(chat: TerminalChat, words: str = "") -> None:
    if not words:
        raise SessionError("/search takes words or a question", "as in /search where do we deploy billing")
    db = chat.agent.memory.sessions
    hits = db.past.search(words, everybody=True, exclude_sessions=[chat.agent.session.id], distinct=True)
    print_hits(db, hits)
    chat.writer.note("this chat itself was not searched")
    warn(map(redact, db.past.problems_of(hits)))


def _model(chat: TerminalChat, name: str = "") -> None:
    model = chat.agent.model
    if not isinstance(model, OpenAIModel):
        raise SessionError(f"{model.name!r} is not a model of a server", "it can't be changed here")
    try:
        names, problem = model.list_models(), ""
    except ModelError as exc:
        names, problem = [], str(exc)
    if name:
        model.use(name)
        click.secho(f"model: {printable(model.name)}, for this chat", dim=True)
        if names and name not in names:
            close = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names[:3]
            warn([f"the server lists no {name!r}; it has {', '.join(map(repr, close))}"])
        return
    click.secho(f"model: {printable(model.name)} at {printable(redact(model.settings.base_url))}", dim=True)
    warn(filter(None, [problem]))
    print_table("", ("the server has",), [(listed,) for listed in names], "")


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


def _review_notes(chat: TerminalChat) -> None:
    session = chat.agent.session
    dialog = ReviewDialog(chat.agent.memory, chat.agent.memory.curated.of(session), session)
    if not chat.interactive:
        dialog.list()
        return
    dialog.ask()
    if dialog.report.accepted:
        chat.writer.note("the next session has them in its prompt")


def _entries(curated: Notes) -> list[str]:
    """Return all entries of files that can be read."""
    stored = curated.read()
    readable = (target for target in stored.files if target not in stored.problems)
    return [f"{target}: {entry}" for target in readable for entry in stored.entries(target)]


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
        ("provider", agent.memory.internals.selection.name or "built-in only"),
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
        find = partial(memory.sessions.find_session, wanted)
        match = find(user="") or find(everybody=True)
    if match is None:
        which = f"session {wanted!r}" if wanted != LAST else "other chat" if besides else "chat"
        more = " with messages" if wanted == LAST else ""
        raise SessionError(f"there is no {which}{more}", "list them with `hermes-memory sessions list`")
    if match.user:
        raise SessionError(f"session {wanted!r} is {match.user}'s", "`hermes-memory sessions show` shows it")
    return match.id


COMMANDS: Mapping[str, tuple[str, Callable[..., TurnResult | None]]] = {
    "help": ("this list", _help),
    "new": ("end this session and begin another", _new),
    "reset": ("as /new", _reset),
    "resume": ("go on with a session by id or title, or the `last`; without one, list them", _resume),
    "branch": ("go on in a copy of this session", _branch),
    "undo": ("undo the last turn, or the last N", _undo),
    "retry": ("undo the last turn and answer its message again", _retry),
    "model": ("show the models of the server, or talk with another of them", _model),
    "title": ("show the title of this session, or give it one", _title),
    "search": ("find messages of past sessions, without this one", _search),
    "compress": ("summarise the conversation so far", _compress),
    "memory": ("show MEMORY.md and USER.md", _memory),
    "review": ("confirm or reject the notes that nobody said", _review_notes),
    "undo-memory": ("undo the last change of memory", _undo_memory),
    "skills": ("list the skills", _skills),
    "undo-skill": ("undo the last change of a skill", _undo_skill),
    "recall": ("show or hide what is recalled", _recall),
    "status": ("session, model and provider", _status),
    "quit": ("leave", _quit),
    "exit": ("the same as /quit", _quit),
}
"""The description and the function of each command."""

_WITH_ARGUMENT = frozenset({"model", "resume", "search", "title", "undo"})
