"""`hermes-memory chat`: a conversation in the terminal, and one message with `-m` for programs."""

from __future__ import annotations

import signal
import sys
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

from hermes_core import HermesHome, open_memory
from hermes_core.cli import DEGRADED, INTERRUPTED, home_of
from hermes_core.cli.output import json_option, print_document, warn
from hermes_core.errors import HermesError
from hermes_core.kit import clip, printable
from hermes_core.logs import LogFile
from hermes_core.safety.terminal import counted, hanging
from hermes_core.shell_words import shell_word
from hermes_core.stopping import current_stop, wait_unless_stopped
from hermes_core.storage.verdicts import Verdicts, find_context_file, read_for_prompt
from hermes_memory_agent import Agent, ConfiguredModels, TurnResult
from hermes_memory_agent.cancel import call_later, start_thread
from hermes_memory_agent.cli.chat_commands import (
    COMMANDS,
    Quit,
    is_command,
    run_command,
    stored_session,
)
from hermes_memory_agent.cli.chat_terminal import TerminalChat, TerminalWriter
from hermes_memory_agent.cli.first_model import ask_for_model
from hermes_memory_agent.locks import SessionLock
from hermes_memory_agent.monitor import ProcessMonitor
from hermes_memory_agent.review import STOPPED, Review

Result = TypeVar("Result")

# For the providers at the end. Together with the flush it stays within the 15 seconds after a SIGTERM.
CLOSE_TIMEOUT_S = 6.0

# Time after the first Ctrl-C from which another one raises `KeyboardInterrupt`.
FORCE_AFTER_S = 1.0

# Wait for the provider to take the one turn of `-m`, before the result is printed.
DELIVERY_TIMEOUT_S = 1.2

# Time at the end after which the person is told what the program waits for.
SLOW_CLOSE_S = 1.0


@click.command()
@click.option(
    "-m",
    "--message",
    help="Say this one thing, print the answer and leave; `-` reads it from standard input.",
)
@click.option("--resume", metavar="ID", help="Go on with a session: its id, its title, or `last`.")
@click.option("--new", is_flag=True, help="Begin a new session (the default).")
@click.option("--model", metavar="NAME", help="Talk with this model of the server instead of model.name.")
@click.option(
    "--no-memory",
    is_flag=True,
    help="Leave the notes and the provider out; a resumed session keeps its prompt.",
)
@click.option("--show-recall", is_flag=True, help="Show what was recalled for each message.")
@json_option
@click.pass_context
def chat(
    ctx: click.Context,
    message: str | None,
    resume: str | None,
    new: bool,
    model: str | None,
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
    if model is not None and not model.strip():
        raise click.UsageError("--model needs the name of a model")
    with ExitStack() as stack:
        exit_if_signalled = stack.enter_context(_exit_on_signals())
        timers = stack.enter_context(ExitStack())  # entered first, so closed last
        try:
            if message is None and not model and sys.stdin.isatty():
                ask_for_model(home_of(ctx))
            terminal = _open(
                stack,
                home_of(ctx),
                resume,
                (model or "").strip(),
                no_memory=no_memory,
                once=message is not None,
            )
            terminal.show_recall = show_recall
            if message is not None:
                text = _as_utf8(sys.stdin.read()) if message == "-" else message
                ctx.exit(_answer(terminal, text, as_json, with_provider=not no_memory))
        except HermesError as exc:
            if not as_json:
                raise
            print_document(_as_data(TurnResult("", "failed", "", "", problems=(str(exc),))))
            ctx.exit(1)
        if terminal.interactive:
            # This callback runs first: the timer runs while the agent and the memory close.
            stack.callback(lambda: timers.callback(call_later(SLOW_CLOSE_S, _note_closing)))
        ctx.exit(_converse(terminal, exit_if_signalled, with_provider=not no_memory))


def _open(
    stack: ExitStack, home: HermesHome, resume: str | None, model: str, *, no_memory: bool, once: bool
) -> TerminalChat:
    """Open memory, models and agent until the stack is closed; return the conversation."""
    writer = TerminalWriter(tools=not once)
    if once:  # standard output is for the answer: a provider's prints go to standard error
        stack.enter_context(redirect_stdout(sys.stderr))
    memory = stack.enter_context(open_memory(home))
    stack.callback(memory.close, CLOSE_TIMEOUT_S)
    warn(memory.config.warnings)
    log = LogFile(home)
    stack.enter_context(
        ProcessMonitor(
            memory.config.agent.monitor_minutes, report=lambda figures: log.write("info", "process", figures)
        )
    )
    models = stack.enter_context(ConfiguredModels(memory, partial(_note_retry, writer), name=model))
    lock = SessionLock(memory.sessions.database)
    stack.callback(lock.release)
    folder = _folder()
    trust = None
    if resume is None and memory.config.agent.trust_folder == "ask":
        trust = _trusts_folder(home, folder, ask=not once and sys.stdin.isatty())
    agent = stack.enter_context(
        models.agent(
            memory,
            session_id=stored_session(memory, resume) if resume is not None else "",
            folder=folder,
            trust_folder=trust,
            skip_memory=no_memory,
            on_review=partial(_note_review, writer, once),
        )
    )
    lock.move(agent.session.id)
    chat = TerminalChat(agent, lock, writer=writer)
    chat.end_crashed()
    return chat


def _folder() -> Path | None:
    """Return the working folder, in which an AGENTS.md may be; None if it was deleted."""
    with suppress(FileNotFoundError):
        return Path.cwd()
    return None


def _trusts_folder(home: HermesHome, folder: Path | None, *, ask: bool) -> bool:
    """Return True if the AGENTS.md of the working folder may stand in the prompt.

    The person is asked once and the decision is remembered. A file that was changed since is asked for again: somebody
    else may have changed it. Without `ask`, a file that nobody decided on is left out, with a warning.
    """
    path, verdicts = find_context_file(folder), Verdicts(home)
    if path is None:
        return True  # an unreadable file is reported by the agent
    try:
        text = read_for_prompt(path)
    except OSError:
        return True
    trusted = verdicts.trusts_folder(path.parent, text)
    if trusted is None and ask:
        click.secho(
            f"{printable(str(path))} wants to be part of the system prompt: {counted(len(text), 'character')}, "
            f"beginning with {printable(clip(text, 80))!r}. Trust it only if you know who wrote it.",
            err=True,
        )
        trusted = click.confirm("Take it into the prompt, now and from now on?", default=False, err=True)
        verdicts.allow(text, "folder", str(path.parent), allowed=trusted)
    elif trusted is None:
        command = f"hermes-memory memory allow --folder {shell_word(path.parent)}"
        warn([f"{path} is not in the prompt, since nobody said yet that this folder is trusted: {command}"])
    return bool(trusted)


def _answer(terminal: TerminalChat, message: str, as_json: bool, *, with_provider: bool) -> int:
    """Answer one message, for scripts; return the exit code. `with_provider` is False if no provider gets the turn."""
    terminal.lock_session()
    with _CtrlC(terminal.agent.interrupt, leaves=True) as ctrl_c:
        run = terminal.agent.run_turn if as_json else terminal.answer
        result = ctrl_c.run(partial(run, message))
        if with_provider and result.outcome == "answered" and not result.problems:
            result = replace(result, problems=_undelivered(terminal.agent))
            if not as_json:
                warn(result.problems)
    if as_json:
        print_document(_as_data(result))
    _finish_review(terminal, terminal.agent.memory.config.agent.flush_seconds)
    if result.outcome == "answered":
        return DEGRADED if result.problems else 0
    return INTERRUPTED if result.outcome == "interrupted" else 1


def _undelivered(agent: Agent) -> tuple[str, ...]:
    """Return the problems if the provider does not take the last turn in a moment: no later turn reports them."""
    return () if agent.memory.flush(DELIVERY_TIMEOUT_S) else tuple(agent.memory.problems(agent.session))


def _converse(terminal: TerminalChat, exit_if_signalled: Callable[[], None], *, with_provider: bool) -> int:
    """Answer messages until there are no more; return the exit code, which is 0 if a person saw the problems."""
    memory, failed, degraded = terminal.agent.memory, False, False
    warn([*memory.problems(), *(entry.problem for entry in memory.curated.read().flagged())])
    terminal.show_models(with_memory=with_provider)
    terminal.show_session()
    terminal.writer.note("/help lists commands, Alt-Enter or Ctrl-J begins a new line, Ctrl-D leaves")
    with (
        _CtrlC(terminal.agent.interrupt, leaves=not terminal.interactive) as ctrl_c,
        closing(_messages(terminal)) as messages,
    ):
        exit_if_signalled()
        for message in messages:
            try:
                run = partial(run_command, terminal) if is_command(message) else terminal.answer
                result = ctrl_c.run(partial(run, _as_utf8(message)))
                if result is not None:
                    if result.set_aside:
                        terminal.writer.note(
                            "this message is set aside, and later ones go on without it: /retry sends it once more, "
                            "as after /model NAME, and /undo removes it"
                        )
                    failed |= result.outcome == "failed"
                    degraded |= bool(result.problems)
            except Quit:
                break
            except HermesError as exc:
                failed = True
                click.secho(f"error: {hanging(str(exc))}", fg="red", err=True)
            except KeyboardInterrupt:
                terminal.writer.note("stopped")
            if ctrl_c.pressed and not terminal.interactive:
                raise KeyboardInterrupt
            terminal.lock_session()
            exit_if_signalled()
    _finish_review(terminal, 0.0 if terminal.interactive else memory.config.agent.flush_seconds)
    if terminal.interactive:
        return 0
    if with_provider and not degraded:
        problems = _undelivered(terminal.agent)
        warn(problems)
        degraded = bool(problems)
    return 1 if failed else DEGRADED if degraded else 0


def _finish_review(terminal: TerminalChat, seconds: float) -> None:
    """Wait so long for a background review, which Ctrl-C stops too; then stop it."""
    agent, note = terminal.agent, terminal.writer.note
    if agent.wait_for_review(0):
        return
    done = False
    with suppress(KeyboardInterrupt):
        if seconds > 0:
            note("reviewing the conversation for memory; Ctrl-C stops that")
            done = wait_unless_stopped(agent.wait_for_review, seconds)
    if not done:
        agent.stop_review()
        note("the review for memory was stopped; it comes after the next answer")


class _CtrlC:
    """The handling of Ctrl-C within a block.

    The first Ctrl-C calls `interrupt` to end the action that `run` runs. If the action still runs a while later, another
    Ctrl-C raises `KeyboardInterrupt` in it. While no action runs, Ctrl-C `leaves` the program or does nothing: nobody
    should lose a chat by pressing it once too often, and the prompt reads it as a key.

    `interrupt` is called on a thread of its own. An exception in the middle of the action could leave a lock or a
    transaction behind.
    """

    def __init__(self, interrupt: Callable[[], None], *, leaves: bool) -> None:
        self._interrupt = interrupt
        self._leaves = leaves
        self._presses: SimpleQueue[bool] = SimpleQueue()
        self._running = False
        self._asked_at = 0.0

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:  # a shell ignores it for its background jobs
            signal.signal(signal.SIGINT, self._handle)
        start_thread(self._listen, "chat-ctrl-c")
        return self

    def __exit__(self, *exc: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._presses.put(False)

    @property
    def pressed(self) -> bool:
        """True if the last action was asked to end."""
        return bool(self._asked_at)

    def run(self, action: Callable[[], Result]) -> Result:
        """Run the action. Raise `KeyboardInterrupt` if it did not end by itself."""
        self._asked_at = 0.0
        try:
            self._running = True
            return action()
        finally:
            self._running = False

    def _listen(self) -> None:
        while self._presses.get():
            self._interrupt()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._running and not self._asked_at:
            self._asked_at = time.monotonic()
            self._presses.put(True)
        elif self._leaves if not self._running else time.monotonic() - self._asked_at > FORCE_AFTER_S:
            raise KeyboardInterrupt


def _as_utf8(text: str) -> str:
    """Return input whose bytes the locale could not decode, decoded as UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _messages(terminal: TerminalChat) -> Generator[str, None, None]:
    """Yield the messages that the person types, or the lines of a pipe."""
    if sys.stdin.isatty():
        from prompt_toolkit.application import create_app_session
        from prompt_toolkit.output import create_output

        from hermes_memory_agent.cli.chat_input import read_messages

        history = terminal.agent.memory.home.path / "chat_history"
        # The prompt goes to standard error if standard output is a file or `tee`.
        with create_app_session(output=create_output(always_prefer_tty=True)):
            others = terminal.agent.memory.internals.selection.extras.chat_commands
            commands = [f"/{name}" for name in dict.fromkeys((*COMMANDS, *others))]
            yield from read_messages(history, commands, lambda problem: warn([problem]))
        return
    for line in sys.stdin:
        if line.strip():
            yield line.strip()


def _note_closing() -> None:
    click.secho("still ending the session; Ctrl-C cuts it short", dim=True, err=True)


def _note_retry(writer: TerminalWriter, reason: str) -> None:
    """Print why the answer takes so long; nothing for background work, which nobody waits for."""
    if current_stop() is not None:
        writer.end_line()
        writer.note(reason)


def _note_review(writer: TerminalWriter, once: bool, review: Review) -> None:
    """Print the changes of a background review and how to undo them, on its thread, between two answers."""
    of_memory, of_skills = (
        ("hermes-memory memory undo", "hermes-memory skills undo")
        if once
        else ("/undo-memory", "/undo-skill")
    )
    commands = Counter(of_skills if change.startswith("skill ") else of_memory for change in review.changes)
    undo = ", ".join(way if times == 1 else f"{times} times {way}" for way, times in commands.items())
    with writer.turn:
        if review.changes:
            writer.note(f"{review} (undo: {undo})")
        if review.failure and review.failure != STOPPED:
            writer.note(f"the review for memory failed: {review.failure}")


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
def _exit_on_signals() -> Iterator[Callable[[], None]]:
    """Let SIGTERM, and SIGHUP of a closed window, end the program through every `with` block.

    So the session ends and the providers are shut down. A signal that is ignored, as under `nohup`, stays ignored. The
    function that is yielded exits if a signal came: an exception that a handler raises inside a finaliser is lost.
    """
    received: list[int] = []

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        received.append(number)
        raise SystemExit(128 + number)

    def exit_if_signalled() -> None:
        if received:
            raise SystemExit(128 + received[0])

    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, leave)
    try:
        yield exit_if_signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
