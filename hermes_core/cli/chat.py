"""`hermes chat`: a conversation in the terminal that remembers, and one question for programs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from hermes_core.agent.answer import ToolRequest
from hermes_core.agent.claims import Claim
from hermes_core.agent.configured import ConfiguredModels
from hermes_core.agent.loop import Agent
from hermes_core.agent.monitor import ProcessMonitor
from hermes_core.agent.review import Review
from hermes_core.agent.turn import TurnResult
from hermes_core.cli import DEGRADED, home_of
from hermes_core.cli.chat_commands import COMMANDS, Chat, Quit, run_command
from hermes_core.cli.output import json_option, print_json, warn
from hermes_core.errors import HermesError, SessionError
from hermes_core.kit.text import printable
from hermes_core.memory import Memory, open_memory

LAST = "last"

CLOSE_SECONDS = 6.0
"""For the providers at the end; with `agent.flush_seconds` it stays within the 15 that a SIGTERM leaves."""


LONG_CLOSE = 1.0
"""Seconds of leaving after which the person is told what it takes so long for."""


@click.command()
@click.option("-m", "--message", help="Say this one thing, print the answer and leave.")
@click.option("--resume", metavar="ID", help="Go on with a session: its id, its title, or `last`.")
@click.option("--new", is_flag=True, help="Begin a new session (the default).")
@click.option("--no-memory", is_flag=True, help="Leave curated memory and the provider out.")
@click.option("--show-recall", is_flag=True, help="Show what was recalled for each message.")
@json_option
@click.pass_context
def chat(
    ctx: click.Context,
    message: str | None,
    resume: str | None,
    new: bool,
    no_memory: bool,
    show_recall: bool,
    as_json: bool,
) -> None:
    """Talk with the model that config.yaml names; /help lists the commands.

    The session is stored and can be resumed. Ctrl-C stops an answer, Ctrl-D leaves.
    """
    if new and resume:
        raise click.UsageError("give --new or --resume, not both")
    if as_json and message is None:
        raise click.UsageError("--json answers one message: give it with -m")
    with ExitStack() as stack:
        stack.enter_context(_ended_by_sigterm())
        leaving = threading.Timer(LONG_CLOSE, _tell_leaving)
        leaving.daemon = True
        stack.callback(leaving.cancel)
        memory = stack.enter_context(open_memory(home_of(ctx)))
        stack.callback(memory.close, CLOSE_SECONDS)
        stack.enter_context(ProcessMonitor(memory.config.agent.monitor_minutes))
        models = stack.enter_context(ConfiguredModels(memory))
        claim = Claim(memory.home)
        stack.callback(claim.release)
        agent = stack.enter_context(_agent(memory, models, resume, no_memory))
        claim.move(agent.session.id)
        for session_id in claim.abandoned():
            agent.end_crashed(session_id)
        talk = Chat(agent, claim, show_recall)
        if message is None:
            if talk.interactive:
                stack.callback(leaving.start)
            _converse(talk)
        else:
            ctx.exit(_answer(talk, message, as_json))


def _agent(memory: Memory, models: ConfiguredModels, resume: str | None, no_memory: bool) -> Agent:
    session_id = _stored_session(memory, resume) if resume else ""
    return models.agent(
        memory, session_id=session_id, folder=Path.cwd(), skip_memory=no_memory, reviewed=_tell_review
    )


def _stored_session(memory: Memory, wanted: str) -> str:
    if wanted == LAST:
        listed = memory.sessions.list_sessions(source="cli", limit=1)
        found = listed[0].session if listed else None
    else:
        found = memory.sessions.find_session(wanted)
    if found is None:
        raise SessionError(f"there is no session {wanted!r}", "list them with `hermes sessions list`")
    return found.id


def _answer(talk: Chat, message: str, as_json: bool) -> int:
    """One message, for scripts; the exit code."""
    result = talk.agent.run_turn(message, hear=(lambda _: None) if as_json else _say)
    if as_json:
        print_json(_as_data(result))
    else:
        _tell(talk, result)
    if result.outcome != "answered":
        return 1
    return DEGRADED if result.problems else 0


def _converse(talk: Chat) -> None:
    warn(talk.agent.memory.problems())
    click.secho(f"session {talk.agent.session.id[:12]}; /help lists commands, Ctrl-D leaves", dim=True)
    for line in _lines(talk):
        try:
            if line.startswith("/"):
                run_command(talk, line)
            else:
                _tell(talk, talk.agent.run_turn(line, hear=_say, called=_tell_call))
        except Quit:
            return
        except KeyboardInterrupt:
            click.secho("stopped", dim=True, err=True)
        except HermesError as exc:
            click.secho(f"error: {exc}", fg="red", err=True)
        talk.claim.move(talk.agent.session.id)


def _lines(talk: Chat) -> Iterator[str]:
    """What the person types, a message at a time; lines of a pipe when nobody sits there."""
    if sys.stdin.isatty():
        yield from _typed(talk)
        return
    for line in sys.stdin:
        if line.strip():
            yield line.strip()


def _typed(talk: Chat) -> Iterator[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory

    file = talk.agent.memory.home.path / "chat_history"
    file.touch(mode=0o600)
    completer = WordCompleter([f"/{name}" for name in COMMANDS], sentence=True)
    session: PromptSession[str] = PromptSession(history=FileHistory(str(file)), completer=completer)
    while True:
        try:
            line = session.prompt("> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if line:
            yield line


def _say(text: str) -> None:
    click.echo(printable(text), nl=False)


def _tell(talk: Chat, result: TurnResult) -> None:
    """What goes with an answer: how it ended, what was recalled, what did not work."""
    if result.text:
        click.echo()
    if result.outcome == "interrupted":
        click.secho("(stopped; no provider hears of this turn)", dim=True, err=True)
    if talk.show_recall:
        for label, text in result.recall.contexts:
            click.secho(f"recalled from {label}:\n{printable(text)}", dim=True, err=True)
    if result.outcome == "failed":
        for problem in result.problems:
            click.secho(f"error: {printable(problem)}", fg="red", err=True)
    else:
        warn(result.problems)


def _tell_leaving() -> None:
    click.secho("still ending the session; Ctrl-C cuts it short", dim=True, err=True)


def _tell_call(request: ToolRequest, result: str) -> None:
    del result
    click.secho(f"[{printable(request.name)}]", dim=True, err=True)


def _tell_review(review: Review) -> None:
    if review.changes:
        click.secho(f"{printable(str(review))} (undo: /undo-memory)", dim=True, err=True)


def _as_data(result: TurnResult) -> dict[str, Any]:
    return {
        "text": result.text,
        "outcome": result.outcome,
        "session_id": result.session_id,
        "turn_id": result.turn_id,
        "recall": [{"source": label, "text": text} for label, text in result.recall.contexts],
        "problems": list(result.problems),
        "tool_calls": result.tool_calls,
        "usage": {
            "prompt": result.usage.prompt,
            "completion": result.usage.completion,
            "cached": result.usage.cached,
        },
    }


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM leave through every `with` block, so that the session is ended and providers are shut down."""

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
