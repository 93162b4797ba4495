"""Handles on one conversation and on one turn of it, for programs with a loop or a framework of their own."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from hermes_core.contract.values import EndReason, Session, Turn
from hermes_core.errors import SessionError
from hermes_core.manager.manager import RecallResult
from hermes_core.safety.fence import without_context
from hermes_core.safety.scrubber import StreamingContextScrubber
from hermes_core.sessions.open_turns import HostState, OpenTurnStore, StateScope, StoredOpenTurn
from hermes_core.sessions.records import SYSTEM_ROLES, Content, StoredMessage, in_text, text_of

if TYPE_CHECKING:
    from hermes_core.memory import Memory, RecallReport, TurnRecall

log = logging.getLogger(__name__)

# The form in which a model's API takes the schemas of tools.
ToolForm = Literal["openai", "anthropic", "mcp", "plain"]

# Messages before the person's message that providers get with the query.
RECENT_MESSAGES = 6

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call.

    Attributes:
        text: The text for the model, also if the call failed.
        ok: True if the call did what it was asked for.
        error: Why the call failed; "" if it did not.
    """

    text: str
    ok: bool = True
    error: str = ""

    @classmethod
    def from_text(cls, text: str) -> ToolResult:
        """Return the result that a tool reports in its text: failures are JSON with `error`.

        >>> ToolResult.from_text('{"success": false, "error": "no such entry"}').error
        'no such entry'
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return cls(text)
        if not isinstance(value, dict) or not (value.get("success") is False or value.get("error")):
            return cls(text)
        return cls(text, False, str(value.get("error") or "the tool reported no success"))


class Conversation:
    """A conversation with one person or chat. Use `Memory.conversation` to make one. It stores nothing before its first turn.

    Attributes:
        memory: The memory that stores the conversation.
        session: The session of the conversation.
        state: JSON values of this conversation, as a mapping. They are deleted with it.
        user_state: JSON values of the user, for all their conversations.
        app_state: JSON values of the platform, for all users.
    """

    def __init__(self, memory: Memory, session: Session, *, source: str = "", title: str = "") -> None:
        self.memory, self.session = memory, session
        self._source, self._title = source, title
        self._open_turns = OpenTurnStore(memory.sessions)
        self.state = self._state("session", session.id)
        self.user_state = self._state("user", session.owner)
        self.app_state = self._state("app", session.platform)

    def _state(self, scope: StateScope, owner: str) -> HostState:
        return HostState(self.memory.sessions, scope, owner)

    @property
    def id(self) -> str:
        """Id of the session. `memory.conversation(id)` with the same user continues the conversation."""
        return self.session.id

    # -------------------------------------------------------------------- turn

    def turn(
        self,
        text: Content,
        *,
        turn_id: str = "",
        author: str = "",
        native: object = None,
        history: int | None = None,
        read_your_writes: bool = False,
    ) -> OpenTurn:
        """Begin a turn with the person's message: start the providers and recall. A provider that fails raises nothing.

        Args:
            text: The message: a text, or a list of content parts. Recall in it is removed.
            turn_id: Id of the turn; default: a new one. If a turn with this id is open, it is continued.
            author: Name of the person, if several people speak in the conversation.
            native: The message as JSON in the form of a framework. It is stored and given to nobody.
            history: Largest number of earlier messages in `OpenTurn.messages`; default: all.
            read_your_writes: Wait until the provider has taken what was said before, at most the deadline of `prefetch`.

        Raises:
            SessionError: A turn with this id is finished, or belongs to another conversation.
            DatabaseUnavailable: The session or the turn could not be stored.
        """
        if turn_id and (stored := self._open_turns.get(turn_id)) is not None:
            return self._continue(stored, history)
        memory, now = self.memory, time.time()
        self._begin()
        self._open_turns.expire(before=now - memory.config.sessions.turn_expiry_hours * SECONDS_PER_HOUR)
        clean = without_context(text)
        recent = memory.sessions.get_messages(self.id, last=RECENT_MESSAGES)
        if read_your_writes:
            memory.wait_for_writes()
        # Frozen before recall, which leaves out what the prompt says.
        memory.frozen_prompt(self.session)
        recall = memory.begin_turn(clean, self.session, recent=[message.as_text() for message in recent])
        user: dict[str, Any] = {"role": "user", "content": "" if clean is None else clean}
        if native is not None:
            user["native"] = native
        stored = StoredOpenTurn(turn_id or uuid.uuid4().hex, self.id, user, author, recall.contexts)
        self._open_turns.create(stored, at=now)
        return OpenTurn(self, stored, recall, history)

    def resume(self, turn_id: str, *, history: int | None = None) -> OpenTurn:
        """Continue an unfinished turn, which another process may have begun. Nothing is recalled anew.

        Args:
            turn_id: Id of the turn.
            history: Largest number of earlier messages in `OpenTurn.messages`; default: all.

        Raises:
            SessionError: There is no such unfinished turn in this conversation.
        """
        stored = self._open_turns.get(turn_id)
        if stored is None:
            fact = "is finished" if self.memory.sessions.has_turn(turn_id) else "is not open"
            raise SessionError(
                f"turn {turn_id!r} {fact}",
                "begin a new turn; unfinished turns expire after `sessions.turn_expiry_hours`",
            )
        return self._continue(stored, history)

    def _continue(self, stored: StoredOpenTurn, history: int | None) -> OpenTurn:
        from hermes_core.memory import TurnRecall

        if stored.session_id != self.id:
            raise SessionError(
                f"turn {stored.id!r} belongs to another conversation", "give each turn an id of its own"
            )
        self._begin()
        recall = TurnRecall(RecallResult(), stored.contexts, tuple(self.memory.problems(self.session)))
        return OpenTurn(self, stored, recall, history)

    def _begin(self) -> None:
        """Store the session if it is new, and start the providers for it."""
        self.memory.begin_session(self.session, source=self._source, title=self._title)

    # ----------------------------------------------------------------- reading

    @property
    def system_prompt(self) -> str:
        """The notes and the provider's block for the system prompt, the same text for the whole conversation.

        The text is stored at the first turn, so that another process sends the same bytes.
        """
        return self.memory.frozen_prompt(self.session)

    def history(self, *, last: int | None = None) -> list[StoredMessage]:
        """Return the messages of finished turns, oldest first.

        Args:
            last: Return only so many messages at the end; default: all.
        """
        return self.memory.sessions.get_messages(self.id, last=last)

    def recall(self, text: Content, *, limit: int = 10, read_your_writes: bool = False) -> RecallReport:
        """Return a report of the recall that a turn with this message would get; see `Memory.recall`."""
        return self.memory.recall(text, limit=limit, session=self.session, read_your_writes=read_your_writes)

    def call_tool(self, name: str, arguments: Any, call_id: str = "") -> ToolResult:
        """Run a tool that the model called. Errors are in the result, not raised.

        Args:
            name: Name of the tool.
            arguments: The arguments as a dict, or as JSON text.
            call_id: Id that the model gave the call.
        """
        return ToolResult.from_text(self.memory.call_tool(name, arguments, self.session, call_id))

    def change_memory(
        self, action: str, target: str = "memory", content: str = "", old_text: str = ""
    ) -> dict[str, Any]:
        """Change the notes of this user with the `memory` tool, and return its result."""
        return self.memory.change_memory(action, target, content, old_text, session=self.session)

    # --------------------------------------------------------------------- end

    def commit(self) -> None:
        """Let the provider learn from the conversation so far. The conversation goes on."""
        self.memory.commit_session(self.session)

    def end(self, reason: EndReason = "close") -> None:
        """Mark the conversation as ended, and let the provider learn from all of it. A later turn opens it again."""
        if self.memory.sessions.get_session(self.id) is not None:
            self.memory.end_session(self.session, reason)

    def rewind(self, turns: int = 1) -> list[str]:
        """Undo the last turns, also at the provider. Return the ids of the undone turns.

        Args:
            turns: Number of turns.

        Raises:
            SessionError: The conversation has fewer turns.
        """
        return self.memory.rewind(self.session, self.memory.sessions.turn_start(self.id, turns))

    def delete(self) -> None:
        """Delete the conversation with its state; see `Memory.delete_session`."""
        self.memory.delete_session(self.id)


class OpenTurn:
    """A turn that is not finished. `Conversation.turn` and `Conversation.resume` make one.

    Its messages are stored as they come. No search, recall, history or provider gets them before `finish`.

    Attributes:
        id: Id of the turn, by which another process may continue it.
        conversation: The conversation of the turn.
        recall: What was recalled for the person's message.
        problems: A sentence for each part of the memory that did not work.
    """

    def __init__(
        self, conversation: Conversation, stored: StoredOpenTurn, recall: TurnRecall, history: int | None
    ) -> None:
        self.id, self.conversation, self.recall = stored.id, conversation, recall
        self.problems: list[str] = list(recall.problems)
        self._memory, self._session = conversation.memory, conversation.session
        self._user, self._author = stored.user, stored.author
        self._messages: list[Mapping[str, Any]] = list(stored.messages)
        self._history = _last_turns(
            self._memory.sessions.get_messages_as_conversation(self._session.id), history
        )
        self._open_turns = OpenTurnStore(self._memory.sessions)
        self._scrubber = StreamingContextScrubber()

    @property
    def session(self) -> Session:
        """The session of the conversation."""
        return self._session

    @property
    def text(self) -> str:
        """The person's message as text, without recall."""
        return text_of(self._user["content"])

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The request for the model in the OpenAI chat form, for this turn only.

        It has the system prompt if that is not empty, the earlier messages, the person's message with the recall, and
        what `add` stored.
        """
        prompt = self.conversation.system_prompt
        system = [{"role": "system", "content": prompt}] if prompt else []
        return [*system, *self._history, self.request_message, *map(_without_native, self._messages)]

    @property
    def request_message(self) -> dict[str, Any]:
        """The person's message with the recall, in the OpenAI chat form, for the request of this turn only."""
        return {"role": "user", "content": self.recall.inject(self._user["content"])}

    def tools(self, form: ToolForm = "openai") -> list[dict[str, Any]]:
        """Return the schemas of the tools of memory in the form of a model's API; "plain" is `Memory.tool_schemas`."""
        return tool_schemas_as(self._memory.tool_schemas(), form)

    def call_tool(self, name: str, arguments: Any, call_id: str = "") -> ToolResult:
        """Run a tool that the model called; see `Conversation.call_tool`. The result is not added to the turn."""
        return self.conversation.call_tool(name, arguments, call_id)

    def add(self, *messages: Mapping[str, Any], native: object = None) -> None:
        """Store messages of the turn, such as tool calls of the model and their results. They are durable on return.

        Args:
            messages: Messages in the OpenAI chat form. Recall in them is removed, system prompts are left out.
            native: The last message as JSON in the form of a framework. It is stored and given to nobody.

        Raises:
            SessionError: A value is no message, or the turn is not open.
            DatabaseUnavailable: The messages could not be stored.
        """
        in_text(messages)  # raises for a value that is no message
        clean = [self._clean(message) for message in messages if message["role"] not in SYSTEM_ROLES]
        if native is not None and clean:
            clean[-1] = {**clean[-1], "native": native}
        self._open_turns.add(self.id, clean, at=time.time())
        self._messages += clean

    def scrub(self, chunk: str, *, end: bool = False) -> str:
        """Return what the person may see of a piece of the model's streamed answer: recall is removed.

        Args:
            chunk: The next piece of the answer. Text that may be the beginning of recall is returned with a later piece.
            end: True for the last piece.
        """
        visible = self._scrubber.feed(chunk)
        return visible + self._scrubber.flush() if end else visible

    def finish(
        self, answer: Content = None, *, native: object = None, at: float | None = None, warm: bool = True
    ) -> Turn:
        """Store the finished turn and its outbox row in one commit. It is durable and searchable on return.

        Args:
            answer: The model's answer; recall that it repeats is removed. Leave it out if `add` stored it already.
            native: The answer as JSON in the form of a framework.
            at: Time of the turn in epoch seconds; default: now.
            warm: True to let providers prepare the recall of the next turn.

        Raises:
            SessionError: The turn was cancelled, has expired, or was undone.
            DatabaseUnavailable: The turn could not be stored.
        """
        messages = [self._user, *self._messages]
        last = messages[-1]
        stored_answer = last["role"] == "assistant" and not last.get("tool_calls")
        if answer is None:
            if not stored_answer:
                raise SessionError(f"turn {self.id!r} has no answer", "give it to finish, or cancel the turn")
            answer = last["content"]
        elif not (stored_answer and text_of(last["content"]) == text_of(without_context(answer))):
            final: dict[str, Any] = {"role": "assistant", "content": answer}
            messages.append(final if native is None else {**final, "native": native})
        if self._open_turns.get(self.id) is None and not self._memory.sessions.has_turn(self.id):
            raise SessionError(
                f"turn {self.id!r} is not open: it was cancelled, or has expired",
                "begin a new turn; `sessions.turn_expiry_hours` says after how long one expires",
            )
        turn = self._memory.end_turn(
            self._session,
            self._user["content"],
            answer,
            messages=messages,
            turn_id=self.id,
            at=at,
            warm=warm,
            author=self._author,
        )
        self.problems = list(dict.fromkeys([*self.problems, *self._memory.problems(self._session)]))
        return turn

    def cancel(self) -> None:
        """Delete the unfinished turn: the person stopped it, or it failed. No provider hears of it."""
        self._open_turns.delete(self.id)

    def _clean(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message without recall. What a tool answered is stored as it was."""
        clean = message if message["role"] == "tool" else without_context(dict(message))
        if clean != message:
            self.problems.append(
                "a message of the turn was stored without the recall in it: add the model's own words"
            )
        return dict(clean)


def tool_schemas_as(schemas: Sequence[Mapping[str, Any]], form: ToolForm) -> list[dict[str, Any]]:
    """Return schemas of tools (name, description, parameters) in the form of a model's API.

    Raises:
        SessionError: There is no such form.
    """
    if form == "openai":
        return [{"type": "function", "function": dict(schema)} for schema in schemas]
    if form == "plain":
        return [dict(schema) for schema in schemas]
    key = {"anthropic": "input_schema", "mcp": "inputSchema"}.get(form)
    if key is None:
        raise SessionError(
            f"there is no form {form!r} of tools", f"use one of {', '.join(get_args(ToolForm))}"
        )
    return [
        {"name": schema["name"], "description": schema["description"], key: schema["parameters"]}
        for schema in schemas
    ]


def _without_native(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "native"}


def _last_turns(history: list[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    """Return at most `limit` messages from the end that begin with a person's message: APIs refuse half a tool call."""
    if limit is None or len(history) <= limit:
        return history
    starts = range(len(history) - max(limit, 0), len(history))
    first = next((at for at in starts if history[at]["role"] == "user"), len(history))
    return history[first:]
