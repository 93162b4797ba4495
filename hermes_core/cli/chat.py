"""`hermes-memory chat`: a conversation in the terminal that remembers, and one question for programs."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn, Self, TypeVar

import click

from hermes_core.agent import Agent, ConfiguredModels, TurnResult
from hermes_core.agent.locks import SessionLock
from hermes_core.agent.monitor import ProcessMonitor
from hermes_core.agent.review import STOPPED, Review
from hermes_core.cli import DEGRADED, INTERRUPTED, home_of
from hermes_core.cli.chat_commands import (
    COMMANDS,
    Chat,
    Quit,
    hold,
    is_command,
    run_command,
    stored_session,
    where,
)
from hermes_core.cli.output import json_option, print_json, warn
from hermes_core.cli.voice import Voice
from hermes_core.errors import HermesError
from hermes_core.home import HermesHome
from hermes_core.logs import LogFile
from hermes_core.memory import open_memory
from hermes_core.safety.terminal import hanging
from hermes_core.stopping import current_stop, wait_unless_stopped

Result = TypeVar("Result")

CLOSE_SECONDS = 6.0
"""For the providers at the end; with what a SIGTERM leaves of `agent.flush_seconds` it stays within 15."""

UNHEARD = 1.0
"""Seconds after which what was asked to end is ended by a further Ctrl-C, wherever it is."""

DELIVERY_WAIT = 1.2
"""Seconds for the provider to take the one turn of `-m`, before its result is told."""

LONG_CLOSE = 1.0
"""Seconds of leaving after which the person is told what it takes so long for."""


@click.command()
@click.option(
    "-m",
    "--message",
    help="Say this one thing, print the answer and leave; `-` reads it from standard input.",
)
@click.option("--resume", metavar="ID", help="Go on with a session: its id, its title, or `last`.")
@click.option("--new", is_flag=True, help="Begin a new session (the default).")
@click.option(
    "--no-memory",
    is_flag=True,
    help="Leave curated memory and the provider out; a resumed session keeps its prompt.",
)
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
    if new and resume is not None:
        raise click.UsageError("give --new or --resume, not both")
    if as_json and message is None:
        raise click.UsageError("--json answers one message: give it with -m")
    with ExitStack() as stack:
        leave_if_told = stack.enter_context(_ended_by_signals())
        leaving = threading.Timer(LONG_CLOSE, _tell_leaving)
        leaving.daemon = True
        stack.callback(leaving.cancel)
        try:
            talk = _opened(stack, home_of(ctx), resume, no_memory=no_memory, once=message is not None)
            talk.show_recall = show_recall
            if message is not None:
                said = _heard(sys.stdin.read() if message == "-" else message)
                ctx.exit(_answer(talk, said, as_json, told=not no_memory))
        except HermesError as exc:
            if not as_json:
                raise
            print_json(_as_data(TurnResult("", "failed", "", "", problems=(str(exc),))))
            ctx.exit(1)
        if talk.interactive:
            stack.callback(leaving.start)
        ctx.exit(_converse(talk, leave_if_told, told=not no_memory))


def _opened(stack: ExitStack, home: HermesHome, resume: str | None, *, no_memory: bool, once: bool) -> Chat:
    """The conversation, and what it stands on, until the stack is left."""
    voice = Voice(tools=not once)
    if once:  # standard output is for the answer: what a provider prints is none
        stack.enter_context(redirect_stdout(sys.stderr))
    memory = stack.enter_context(open_memory(home))
    stack.callback(memory.close, CLOSE_SECONDS)
    warn(memory.config.warnings)
    log = LogFile(home)
    stack.enter_context(
        ProcessMonitor(
            memory.config.agent.monitor_minutes, report=lambda figures: log.write("info", "process", figures)
        )
    )
    models = stack.enter_context(ConfiguredModels(memory, partial(_tell_pause, voice)))
    claim = SessionLock(home)
    stack.callback(claim.release)
    agent = stack.enter_context(
        models.agent(
            memory,
            session_id=stored_session(memory, resume) if resume is not None else "",
            folder=_folder(),
            skip_memory=no_memory,
            on_review=partial(_tell_review, voice, once),
        )
    )
    talk = Chat(agent, claim, voice=voice)
    claim.move(agent.session.id)
    for session_id in claim.crashed():
        agent.end_crashed(session_id)
    return talk


def _folder() -> Path | None:
    """Where an AGENTS.md may stand, unless the folder was deleted since."""
    with suppress(FileNotFoundError):
        return Path.cwd()
    return None


def _answer(talk: Chat, message: str, as_json: bool, *, told: bool) -> int:
    """One message, for scripts; the exit code. `told` says whether the provider hears of it."""
    hold(talk)
    with _CtrlC(talk.agent.interrupt, leaves=True) as ctrl_c:
        result = ctrl_c.stops(partial(talk.agent.run_turn if as_json else partial(_turn, talk), message))
        if told and result.outcome == "answered" and not result.problems:
            result = replace(result, problems=_untaken(talk.agent))
            if not as_json:
                warn(result.problems)
    if as_json:
        print_json(_as_data(result))
    _end_look_back(talk, talk.agent.memory.config.agent.flush_seconds)
    if result.outcome == "answered":
        return DEGRADED if result.problems else 0
    return INTERRUPTED if result.outcome == "interrupted" else 1


def _untaken(agent: Agent) -> tuple[str, ...]:
    """What does not work, after the provider had a moment to take the turn: no next one tells of it."""
    return () if agent.memory.flush(DELIVERY_WAIT) else tuple(agent.memory.problems(agent.session))


def _converse(talk: Chat, leave_if_told: Callable[[], None], *, told: bool) -> int:
    """Message after message, until nobody says more; the exit code, 0 where a person has seen what went wrong."""
    memory, failed, degraded = talk.agent.memory, False, False
    warn([*memory.problems(), *(one.problem for one in memory.curated.flagged())])
    where(talk)
    talk.voice.aside("/help lists commands, Ctrl-D leaves")
    with (
        _CtrlC(talk.agent.interrupt, leaves=not talk.interactive) as ctrl_c,
        closing(_lines(talk)) as lines,
    ):
        leave_if_told()
        for line in lines:
            try:
                result = ctrl_c.stops(partial(run_command if is_command(line) else _turn, talk, _heard(line)))
                if result is not None:
                    failed |= result.outcome == "failed"
                    degraded |= bool(result.problems)
            except Quit:
                break
            except HermesError as exc:
                failed = True
                click.secho(f"error: {hanging(str(exc))}", fg="red", err=True)
            except KeyboardInterrupt:
                talk.voice.aside("stopped")
            if ctrl_c.pressed and not talk.interactive:
                raise KeyboardInterrupt
            talk.claim.move(talk.agent.session.id)
            leave_if_told()
    _end_look_back(talk, 0.0 if talk.interactive else memory.config.agent.flush_seconds)
    if talk.interactive:
        return 0
    if told and not degraded:
        untaken = _untaken(talk.agent)
        warn(untaken)
        degraded = bool(untaken)
    return 1 if failed else DEGRADED if degraded else 0


def _end_look_back(talk: Chat, seconds: float) -> None:
    """Let a look back at memory that runs behind the last answer come to its end, for so long; Ctrl-C stops it too."""
    agent = talk.agent
    if agent.wait_for_review(0):
        return
    done = False
    with suppress(KeyboardInterrupt):
        if seconds > 0:
            talk.voice.aside("looking back at memory; Ctrl-C stops that")
            done = wait_unless_stopped(agent.wait_for_review, seconds)
    if not done:
        agent.stop_review()
        talk.voice.aside("a look back at memory was stopped; it comes after the next answer")


class _CtrlC:
    """What Ctrl-C does within the block. The first one asks what `stops` runs to end; a further one raises
    `KeyboardInterrupt` in it where it has not ended a while later. While nothing runs, Ctrl-C `leaves` the program or does
    nothing, so that nobody loses a chat who presses it once too often: the prompt reads it as a key.

    `interrupt` does the asking, on a thread of its own: an exception in the midst of the work could leave a lock or a
    transaction behind.
    """

    def __init__(self, interrupt: Callable[[], None], *, leaves: bool) -> None:
        self._interrupt = interrupt
        self._leaves = leaves
        self._presses: SimpleQueue[bool] = SimpleQueue()
        self._stops = False
        self._asked_at = 0.0

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:  # as for what runs behind a shell
            signal.signal(signal.SIGINT, self._pressed)
        threading.Thread(target=self._listen, name="chat-ctrl-c", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._presses.put(False)

    @property
    def pressed(self) -> bool:
        """Whether what ran last was asked to end."""
        return bool(self._asked_at)

    def stops(self, act: Callable[[], Result]) -> Result:
        """Do it. Raises `KeyboardInterrupt` where it was broken off."""
        self._asked_at = 0.0
        try:
            self._stops = True
            return act()
        finally:
            self._stops = False

    def _listen(self) -> None:
        while self._presses.get():
            self._interrupt()

    def _pressed(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._stops and not self._asked_at:
            self._asked_at = time.monotonic()
            self._presses.put(True)
        elif self._leaves if not self._stops else time.monotonic() - self._asked_at > UNHEARD:
            raise KeyboardInterrupt


def _turn(talk: Chat, message: str) -> TurnResult:
    """Answer one message to a person."""
    voice = talk.voice
    with voice.turn:
        result = talk.agent.run_turn(message, on_text=voice.say, on_tool_call=voice.called)
        voice.end_line()
        _tell(talk, result)
    return result


def _heard(text: str) -> str:
    """What was typed or given, where the locale could not read its bytes: as UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _lines(talk: Chat) -> Generator[str, None, None]:
    """What the person types, a message at a time; lines of a pipe when nobody sits there."""
    if sys.stdin.isatty():
        from prompt_toolkit.application import create_app_session
        from prompt_toolkit.output import create_output

        from hermes_core.cli.typed import typed

        history = talk.agent.memory.home.path / "chat_history"
        # On standard error where standard output leads to a file or to `tee`.
        with create_app_session(output=create_output(always_prefer_tty=True)):
            yield from typed(history, [f"/{name}" for name in COMMANDS], lambda problem: warn([problem]))
        return
    for line in sys.stdin:
        if line.strip():
            yield line.strip()


def _tell(talk: Chat, result: TurnResult) -> None:
    """What goes with an answer: how it ended, what was recalled, what did not work."""
    if result.outcome == "interrupted":
        talk.voice.aside("(stopped; no provider hears of this turn)")
    if talk.show_recall:
        for label, text in result.contexts:
            talk.voice.aside(f"recalled from {label}:\n{text}")
        if not result.contexts:
            talk.voice.aside("nothing was recalled")
    if result.outcome == "failed":
        for problem in result.problems:
            click.secho(f"error: {hanging(problem)}", fg="red", err=True)
    else:
        warn(result.problems)


def _tell_leaving() -> None:
    click.secho("still ending the session; Ctrl-C cuts it short", dim=True, err=True)


def _tell_pause(voice: Voice, why: str) -> None:
    """Why nothing comes for a while, to who waits for it: nobody does for what runs behind the conversation."""
    if current_stop() is not None:
        voice.end_line()
        voice.aside(why)


def _tell_review(voice: Voice, once: bool, review: Review) -> None:
    """What a look back changed, and how to take that back; on its thread, when no answer is coming."""
    of_memory, of_skills = (
        ("hermes-memory memory undo", "hermes-memory skills undo")
        if once
        else ("/undo-memory", "/undo-skill")
    )
    ways = Counter(of_skills if change.startswith("skill ") else of_memory for change in review.changes)
    undo = ", ".join(way if times == 1 else f"{times} times {way}" for way, times in ways.items())
    with voice.turn:
        if review.changes:
            voice.aside(f"{review} (undo: {undo})")
        if review.failure and review.failure != STOPPED:
            voice.aside(f"looking back at memory failed: {review.failure}")


def _as_data(result: TurnResult) -> dict[str, Any]:
    return {
        "text": result.text,
        "outcome": result.outcome,
        "session_id": result.session_id,
        "turn_id": result.turn_id,
        "recall": [{"source": label, "text": text} for label, text in result.contexts],
        "problems": list(result.problems),
        "tool_calls": result.tool_calls,
        "usage": {
            "prompt": result.usage.prompt,
            "completion": result.usage.completion,
            "cached": result.usage.cached,
        },
    }


@contextmanager
def _ended_by_signals() -> Iterator[Callable[[], None]]:
    """Let SIGTERM, and SIGHUP of a window that is closed, leave through every `with` block, so that the session is
    ended and providers are shut down. One that is ignored, as under `nohup`, stays so.

    What is given leaves if one came: what a handler raises is lost where it falls into the finaliser of some object.
    """
    told: list[int] = []

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        told.append(number)
        raise SystemExit(128 + number)

    def leave_if_told() -> None:
        if told:
            raise SystemExit(128 + told[0])

    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, leave)
    try:
        yield leave_if_told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
