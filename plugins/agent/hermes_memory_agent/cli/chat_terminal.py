"""The conversation of `hermes-memory chat` on a terminal or through a pipe: the answers, and notes beside them."""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from hermes_core.cli.output import console, warn
from hermes_core.curated.origins import entry_hash
from hermes_core.curated.waiting import waiting_sentence
from hermes_core.health.provider import selected_health
from hermes_core.kit import printable
from hermes_core.safety.terminal import counted, hanging
from hermes_memory_agent import Agent, ToolRequest, TurnResult
from hermes_memory_agent.locks import SessionLock

if TYPE_CHECKING:
    from hermes_memory_agent.cli.markdown import MarkdownStream


class TerminalWriter:
    """The output of a chat: the answer as it streams, and whole lines beside it.

    `turn` is held during an answer, so that a background thread waits for its end before it prints. With `tools` the names
    of called tools are shown. On a terminal the Markdown of the answer is rendered; files and pipes get it as it is.
    """

    def __init__(self, *, tools: bool = False) -> None:
        self.turn = threading.Lock()
        self._out = sys.stdout
        self._tools = tools
        self._open_line = False
        self._markdown: MarkdownStream | None = None
        self._renders = self._out.isatty() and os.environ.get("TERM") != "dumb"

    def write(self, text: str) -> None:
        """Print the next piece of the answer."""
        if self._renders:
            if self._markdown is None:
                from hermes_memory_agent.cli.markdown import MarkdownStream  # a twentieth of a second

                self._markdown = MarkdownStream(console())
            self._markdown.feed(printable(text))
            return
        click.echo(printable(text), file=self._out, nl=False)
        self._open_line = not text.endswith("\n")

    def end_line(self) -> None:
        """End the current line, if there is one."""
        if self._markdown is not None:
            self._markdown.end()
            self._markdown = None
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
    _announced: set[str] = field(default_factory=set)
    """Hashes of the notes that wait and that the person was told of."""
    _shared_session: str = ""
    """The session of which the person was told that another process has it open too; "" for none."""

    @property
    def interactive(self) -> bool:
        """True if a person types the messages."""
        return sys.stdin.isatty()

    def answer(self, message: str) -> TurnResult:
        """Answer one message to a person."""
        writer = self.writer
        with writer.turn:
            try:
                result = self.agent.run_turn(
                    message, on_text=writer.write, on_tool_call=writer.note_tool_call, shows_line=True
                )
            finally:
                writer.end_line()
            self.print_outcome(result)
            self.note_waiting()
        return result

    def print_outcome(self, result: TurnResult) -> None:
        """Print how an answer ended, the recall, and the problems."""
        note = self.writer.note
        if result.noted:
            note(result.noted)
        if result.outcome == "interrupted":
            note("(stopped; no provider hears of this turn)")
        for part in result.recall.parts:
            if part.recall and part.recall.status:
                note(part.recall.status)
        if self.show_recall:
            for label, text in result.contexts:
                note(f"recalled from {label}:\n{text}")
            if not result.contexts:
                note("nothing was recalled")
        if result.outcome == "failed":
            for problem in result.problems:
                click.secho(f"error: {hanging(problem)}", fg="red", err=True)
        else:
            warn(result.problems)

    def note_waiting(self) -> None:
        """Name how many notes of other sessions wait for the person, each of them once. A line names those of this session."""
        session = self.agent.session
        waiting = self.agent.memory.curated.of(session).read().waiting_notes()
        others = [note for note in waiting if note.origin.session != session.id]
        new = [note for note in others if entry_hash(note.entry) not in self._announced]
        self._announced |= {entry_hash(note.entry) for note in new}
        if new:
            command = "/review" if self.interactive else "hermes-memory review"
            self.writer.note(f"{waiting_sentence([note.origin.origin for note in new])}: {command}")

    def show_models(self, *, with_memory: bool) -> None:
        """Print which model answers and which provider remembers."""
        self.writer.note(f"model {self.agent.model.name}, {self._provider() if with_memory else 'no memory'}")

    def _provider(self) -> str:
        memory = self.agent.memory
        if not memory.internals.selection.name:
            return "notes and past sessions"
        names = []
        for name in memory.internals.selection.names or (memory.internals.selection.name,):
            health = selected_health(memory, name)
            works = health is not None and health.state not in ("failed", "unavailable", "degraded")
            names.append(f"{name}{'' if works else ' (not working)'}")
        return f"provider {' and '.join(names)}"

    def show_session(self) -> None:
        """Print which session this is, and lock it."""
        agent, session_id = self.agent, self.agent.session.id
        count = len(agent.history)
        stored = agent.memory.sessions.get_session(session_id)
        title = f" {printable(stored.title)!r}," if stored is not None and stored.title else ""
        holds = f"{title} {counted(count, 'message')}" if count else ""
        self.writer.note(f"session {agent.memory.sessions.meta.short_id(session_id)}{holds}")
        self.lock_session()

    def lock_session(self) -> None:
        """Lock the session; warn once if another process has it open, also if it took the session over meanwhile."""
        session_id = self.agent.session.id
        is_own = self.lock.move(session_id)
        if not is_own and session_id != self._shared_session:
            warn(["this session is open in another process too; what is said there is not seen here"])
        self._shared_session = "" if is_own else session_id
        self.end_crashed()

    def end_crashed(self) -> None:
        """End the sessions of chats that were killed."""
        for session_id in self.lock.crashed():
            self.agent.end_crashed(session_id)
