"""Handles for hosts: a conversation, and a turn of it that is not finished."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, Unpack, get_args

from msgspec.structs import replace

from hermes_core.contract.values import EndReason, Origin, Query, Session, Turn
from hermes_core.errors import SessionError, StorageError
from hermes_core.manager.manager import RecallResult
from hermes_core.origins import is_said, message_origin
from hermes_core.problems import distinct
from hermes_core.safety.fence import clean_message, without_context
from hermes_core.safety.origin import lowest, may_command
from hermes_core.safety.redact import redact
from hermes_core.sessions.chat_forms import ChatForm, MessageInput, chat_messages, in_form
from hermes_core.sessions.open_turns import HostState, OpenTurnStore
from hermes_core.sessions.records import (
    SYSTEM_ROLES,
    Content,
    ListedSession,
    SearchHits,
    StoredMessage,
    StoredOpenTurn,
    epoch_seconds,
    in_text,
    sqlite_text,
    text_of,
)
from hermes_core.sessions.session_store import as_conversation
from hermes_core.sessions.turn_store import TurnContext
from hermes_core.turn import MemoryTurns
from hermes_core.turn_recall import BegunTurn, RecallOptions, RecallReport, TurnRecall

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


class ChatMessages(list[Any]):
    """Messages of a request in the OpenAI chat form. Call it for the form of another API.

    >>> ChatMessages([{"role": "user", "content": "Hi"}])("anthropic")
    [{'role': 'user', 'content': [{'type': 'text', 'text': 'Hi'}]}]
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(in_form(messages, "openai"))
        self._stored = messages

    def __call__(self, form: ChatForm = "openai") -> list[Any]:
        """Return the messages in the form of a model's API.

        "anthropic" leaves the system prompt out, which that API takes beside the messages: `Conversation.system_prompt`.

        Raises:
            SessionError: There is no such form.
        """
        return in_form(self._stored, form)


class Conversation:
    """A conversation with one person or chat. Use `Memory.conversation` to make one. It stores nothing before its first turn.

    Attributes:
        memory: The memory that stores the conversation.
        session: The session of the conversation. If another user begins a session of the same id before the first
            turn, the user is appended to the id.
    """

    def __init__(self, memory: MemoryTurns, session: Session, *, source: str = "", title: str = "") -> None:
        self.memory, self.session = memory, session
        self._source, self._title = source, title
        self._open_turns = OpenTurnStore(memory.sessions)

    @property
    def state(self) -> HostState:
        """JSON values of this conversation, as a mapping. They are deleted with it."""
        return HostState(self.memory.sessions, "session", lambda: self._own().id, self._begin)

    @property
    def user_state(self) -> HostState:
        """JSON values of the user, for all their conversations."""
        return HostState(self.memory.sessions, "user", lambda: self.session.owner)

    @property
    def app_state(self) -> HostState:
        """JSON values of the platform, for all users."""
        return HostState(self.memory.sessions, "app", lambda: self.session.platform)

    @property
    def id(self) -> str:
        """Id of the session. `memory.conversation(id)` with the same user continues the conversation."""
        return self.session.id

    # -------------------------------------------------------------------- turn

    def turn(
        self,
        text: MessageInput,
        *,
        turn_id: str = "",
        author: str = "",
        origin: Origin | None = None,
        native: object = None,
        history: int | None = None,
        read_your_writes: bool = False,
        at: float | None = None,
        shows_line: bool = False,
    ) -> OpenTurn:
        """Begin a turn with the person's message: start the providers and recall.

        A provider or a store that fails raises nothing: the turn has what could be recalled, its `problems` say what
        failed, and `finish` raises if the store still fails then.

        Args:
            text: The message: a text, a list of content parts, or a message as dict or as an object of OpenAI's or Anthropic's
                SDK. Recall in it is removed.
            turn_id: Id of the turn; default: a new one. If a turn with this id is open, it is continued.
            author: Name of the person, if several people speak in the conversation.
            origin: Origin of a message that no person of the conversation wrote, such as "tool" for a mail, a webhook's
                text or a cron job, or "web" for a page.
            native: The message as JSON in the form of a framework. It is stored and given to nobody.
            history: Largest number of earlier turns in `OpenTurn.messages`; default: all.
            read_your_writes: Wait until the provider has taken what was said before, at most the deadline of `prefetch`.
            at: Time of the message in seconds since the epoch, from which "last week" counts; default: now.
            shows_line: True if the program shows `OpenTurn.noted` to the person. Then the next message that says no drops
                these notes. One without an objection accepts them, if the session has read no text of a lower origin.

        Raises:
            SessionError: A turn with this id is finished, or belongs to another conversation, or there is no such origin, or
                `text` is no message of a person.
        """
        # On a server, one look at what waits for the providers is enough for a turn.
        with self.memory.manager.writes.reading():
            begun = self.prepare_turn(
                text,
                turn_id=turn_id,
                author=author,
                origin=origin,
                native=native,
                read_your_writes=read_your_writes,
                at=at,
                shows_line=shows_line,
            )
            return self.open_turn(begun, history=history)

    def prepare_turn(
        self,
        text: MessageInput,
        *,
        turn_id: str = "",
        author: str = "",
        origin: Origin | None = None,
        native: object = None,
        read_your_writes: bool = False,
        at: float | None = None,
        shows_line: bool = False,
    ) -> BegunTurn:
        """Begin a turn as `turn` does, and do not wait for the recall of the providers; `open_turn` does."""
        memory, turn_id = self.memory, sqlite_text(str(turn_id or ""))
        user = person_message(text)[1]
        if native is not None:
            user["native"] = native
        # Stored with the open turn, which another process may finish.
        seconds = epoch_seconds(at)
        user["timestamp"] = time.time() if seconds is None else seconds
        ask = partial(memory.internals.recaller.ask, author=author, at=at, shows_line=shows_line)
        try:
            return self._begin_stored(user, turn_id, author, origin, read_your_writes, ask)
        except StorageError as exc:
            log.error("a turn begins without its store: %s", exc)
            origin = self._label(user, author, origin)
            unread = TurnContext(self.id, lineage=frozenset([self.id]), origin="import")
            begun = ask(self._own(), user["content"], origin=origin, start=unread)
            begun.stored = StoredOpenTurn(turn_id or uuid.uuid4().hex, self.id, user, author)
            begun.prompt = memory.problem_log.read(
                "notes", partial(memory.internals.prompts.build, self.session), ""
            )
            begun.store_error = exc
            return begun

    def _label(self, user: dict[str, Any], author: str, origin: Origin | None) -> Origin | None:
        """Note the origin of a message in it, and remove fences that nobody typed. Return it; None for the person's own."""
        if not is_said(message_origin(self.session, author, origin)):
            user["content"] = without_context(user["content"], is_said=False)
        known = message_origin(self.session, author, origin, user)
        if origin is None and known == message_origin(self.session, author, None):
            return None
        user["origin"] = known
        return known

    def _begin_stored(
        self,
        user: dict[str, Any],
        turn_id: str,
        author: str,
        origin: Origin | None,
        read_your_writes: bool,
        ask: Callable[..., BegunTurn],
    ) -> BegunTurn:
        """Store a turn that begins, and ask for its recall; return the turn of this id if one is open."""
        memory, now = self.memory, self.memory.sessions.database.now()
        expired_before = now - memory.config.sessions.turn_expiry_hours * SECONDS_PER_HOUR
        self.session, start = memory.internals.recaller.read_start(
            self.session,
            title=self._title,
            recent=RECENT_MESSAGES,
            expired_before=expired_before,
            turn_id=turn_id,
        )
        origin = self._label(user, author, origin)
        if start is None:
            self._begin()
        else:
            memory.internals.start(self.session)
        recent: Sequence[StoredMessage]
        if start is None:
            earlier = self._open_turns.get(turn_id) if turn_id else None
            recent = memory.sessions.get_messages(self.id, last=RECENT_MESSAGES)
        else:
            earlier, recent = start.open_turn, start.recent
        if earlier is not None:
            return BegunTurn(Query(""), self.session, stored=earlier)
        if start is None or start.has_expired_turns:
            self._open_turns.expire(before=expired_before)
        if read_your_writes:
            memory.manager.flush(memory.config.recall.deadline)
        stored = StoredOpenTurn(turn_id or uuid.uuid4().hex, self.id, user, author)
        self._open_turns.create(stored, at=now)
        # Frozen before recall, which leaves out what the prompt says.
        prompt = memory.internals.prompts.frozen(self.session, start)
        messages = [message.as_text() for message in recent]
        begun = ask(self.session, user["content"], recent=messages, origin=origin, start=start)
        begun.stored, begun.prompt = stored, prompt
        return begun

    def open_turn(self, begun: BegunTurn, *, history: int | None = None) -> OpenTurn:
        """Wait for the recall that `prepare_turn` asked for, at most until the deadline, and return the turn."""
        stored = begun.stored
        if stored is None:
            raise ValueError("the turn is not of prepare_turn")
        if begun.prompt is None:
            return self._continue(stored, history)
        recall = self.memory.internals.recaller.collect(begun)
        stored = replace(stored, contexts=recall.contexts, origin=recall.origin)
        read = partial(
            self._open_turns.set_contexts_and_read,
            *(stored.id, recall.contexts, recall.origin, self.session.id, history),
        )
        earlier: list[StoredMessage] = []
        if begun.store_error is None:
            earlier = self.memory.problem_log.read("turns so far", read, earlier)
        turn = OpenTurn(self, stored, recall, history, begun.prompt, earlier)
        turn.keep_unstored(begun.store_error)
        return turn

    def drop(self, begun: BegunTurn, *, stays: bool = False) -> None:
        """Drop a turn that `prepare_turn` began and nobody waits for. A turn that was begun earlier stays open.

        Args:
            stays: True to withdraw the recall alone.
        """
        if begun.prompt is not None:
            begun.withdraw()
            if begun.stored is not None and not (stays or begun.store_error):
                self._open_turns.delete(begun.stored.id)

    def resume(self, turn_id: str, *, history: int | None = None) -> OpenTurn:
        """Continue an unfinished turn, which another process may have begun. Nothing is recalled anew.

        Args:
            turn_id: Id of the turn.
            history: Largest number of earlier turns in `OpenTurn.messages`; default: all.

        Raises:
            SessionError: There is no such unfinished turn in this conversation.
        """
        turn_id = sqlite_text(str(turn_id))
        stored = self._open_turns.get(turn_id)
        if stored is None:
            fact = "is finished" if self.memory.sessions.has_turn(turn_id) else "is not open"
            raise SessionError(
                f"turn {turn_id!r} {fact}",
                "begin a new turn; unfinished turns expire after `sessions.turn_expiry_hours`",
            )
        self._begin()
        return self._continue(stored, history)

    def _continue(self, stored: StoredOpenTurn, history: int | None) -> OpenTurn:
        if stored.session_id != self.id:
            raise SessionError(
                f"turn {stored.id!r} belongs to another conversation", "give each turn an id of its own"
            )
        if stored.contexts is None:  # the process that began the turn died while it waited for the recall
            question = stored.user["content"]
            recaller = self.memory.internals.recaller
            recall = recaller.collect(
                recaller.ask(
                    self.session,
                    question,
                    author=stored.author,
                    origin=stored.user.get("origin"),
                    begins_turn=False,
                )
            )
            self._open_turns.set_contexts(stored.id, recall.contexts, recall.origin)
        else:
            problems = tuple(self.memory.problem_log.all_of(self._own()))
            recall = TurnRecall(RecallResult(), stored.contexts, problems, stored.origin)
        return OpenTurn(self, stored, recall, history)

    def _own(self) -> Session:
        """Return the session of this user. Before the first turn, another user may have begun one of the same id."""
        self.session = self.memory.session(self.session)
        return self.session

    def _begin(self) -> None:
        """Store the session if it is new, and start the providers for it."""
        self.session = self.memory.start_session(self.session, source=self._source, title=self._title)

    # ----------------------------------------------------------------- reading

    @property
    def system_prompt(self) -> str:
        """The notes and the provider's block for the system prompt, the same text for the whole conversation.

        The text is stored at the first turn, so that another process sends the same bytes.
        """
        return self.memory.system_prompt(self.session)

    def history(self, *, last: int | None = None) -> list[StoredMessage]:
        """Return the messages of finished turns, oldest first.

        Args:
            last: Return only so many messages at the end; default: all.
        """
        return self.memory.sessions.get_messages(self._own().id, last=last)

    def recall(self, text: MessageInput, **options: Unpack[RecallOptions]) -> RecallReport:
        """Return a report of the recall that a turn with this message would get, and of `search`; see `Memory.recall`."""
        message = person_message(text)[0]
        return self.memory.recall(message, session=self.session, everybody=False, **options)

    def search(
        self, query: str, *, limit: int = 10, since: float | None = None, until: float | None = None
    ) -> SearchHits:
        """Search the conversations of this user, and of nobody else; see `PastSessions.search`."""
        search = self.memory.sessions.past.search
        return search(query, user=self.session.owner, limit=limit, since=since, until=until)

    def sessions(self, *, limit: int = 20, before: str | None = None) -> list[ListedSession]:
        """Return the conversations of this user, and of nobody else, the last active first.

        Args:
            limit: Largest number of conversations.
            before: Id of the session after which the list goes on; None for the beginning.
        """
        listed = self.memory.sessions.list_sessions
        return listed(user=self.session.owner, limit=limit, before=before)

    def call_tool(self, name: str, arguments: Any, call_id: str = "") -> ToolResult:
        """Run a tool that the model called. Errors are in the result, not raised.

        Args:
            name: Name of the tool.
            arguments: The arguments as a dict, or as JSON text.
            call_id: Id that the model gave the call.
        """
        return ToolResult.from_text(self.memory.call_tool(self.session, name, arguments, call_id))

    def change_memory(
        self, action: str, target: str = "memory", content: str = "", old_text: str = ""
    ) -> dict[str, Any]:
        """Change the notes of this user with the `memory` tool, and return its result."""
        return self.memory.change_memory(action, target, content, old_text, session=self.session)

    # --------------------------------------------------------------------- end

    def commit(self) -> None:
        """Let the provider learn from the conversation so far. The conversation goes on."""
        self.memory.end_session(self.session, "cadence")

    def end(self, reason: EndReason = "close") -> None:
        """Mark the conversation as ended, and let the provider learn from all of it. A later turn opens it again."""
        if self.memory.sessions.get_session(self._own().id) is not None:
            self.memory.end_session(self.session, reason)

    def rewind(self, turns: int = 1) -> list[str]:
        """Undo the last turns, also at the provider. Return the ids of the undone turns.

        Args:
            turns: Number of turns.

        Raises:
            SessionError: The conversation has fewer turns.
        """
        return self.memory.rewind(
            self.session, self.memory.sessions.turns.first_message(self._own().id, turns)
        )

    def delete(self) -> None:
        """Delete the conversation with its state; see `Memory.delete_session`."""
        self.memory.delete_session(self._own().id)


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
        self,
        conversation: Conversation,
        stored: StoredOpenTurn,
        recall: TurnRecall,
        history: int | None,
        prompt: str | None = None,
        earlier: Sequence[StoredMessage] | None = None,
    ) -> None:
        self.id, self.conversation, self.recall = stored.id, conversation, recall
        self.problems: list[str] = list(recall.problems)
        self._memory, self._session = conversation.memory, conversation.session
        self._user, self._author = stored.user, stored.author
        self._messages: list[Mapping[str, Any]] = list(stored.messages)
        self._open_turns = OpenTurnStore(self._memory.sessions)
        if earlier is None:
            earlier = self._open_turns.earlier(self._session.id, history)
        self._history = as_conversation(earlier)
        self._scrubber = recall.scrubber()
        self._store_error: StorageError | None = None
        self._prompt = conversation.system_prompt if prompt is None else prompt

    def keep_unstored(self, error: StorageError | None) -> None:
        """Note that the turn began without its store; `add` and `finish` try again. None if it is stored."""
        self._store_error = error
        if error is not None:
            self.problems = distinct([*self.problems, f"this turn is not stored: {redact(str(error))}"])

    def _require_begun(self) -> None:
        """Store a turn whose store failed when it began. Raise `StorageError` if it still fails."""
        if self._store_error is not None:
            self.conversation._begin()
            self._session = self.conversation.session
            stored = StoredOpenTurn(self.id, self._session.id, self._user, self._author)
            if self._open_turns.get(self.id) is None:
                self._open_turns.create(stored, at=self._memory.sessions.database.now())
            self._open_turns.set_contexts(self.id, self.recall.contexts, self.recall.origin)
            self._store_error = None

    @property
    def session(self) -> Session:
        """The session of the conversation."""
        return self._session

    @property
    def noted(self) -> str:
        """The line to show the person that names notes of the conversation that wait; "" for none, or if it is not shown."""
        return self.recall.noted

    @property
    def text(self) -> str:
        """The person's message as text, without recall."""
        return text_of(self._user["content"])

    @property
    def natives(self) -> list[Any]:
        """The person's message and what `add` stored, each as it was given as `native`; None for one without."""
        return [message.get("native") for message in (self._user, *self._messages)]

    @property
    def messages(self) -> ChatMessages:
        """The request for the model, for this turn only: `messages` in the OpenAI chat form, or `messages("anthropic")`.

        It has the system prompt if that is not empty, the earlier messages, the person's message with the recall, and
        what `add` stored.
        """
        system = [{"role": "system", "content": self._prompt}] if self._prompt else []
        messages = [*system, *self._history, self.request_message, *self._messages]
        return ChatMessages(messages)

    @property
    def request_message(self) -> dict[str, Any]:
        """The person's message with the recall, in the OpenAI chat form, for the request of this turn only."""
        return {"role": "user", "content": self.recall.inject(self._user["content"])}

    def tools(self, form: ToolForm = "openai") -> list[Any]:
        """Return the schemas of the tools of memory in the form of a model's API; "plain" is `Memory.tool_schemas`."""
        return tool_schemas_as(self._memory.tool_schemas(), form)

    def call_tool(self, name: str, arguments: Any, call_id: str = "") -> ToolResult:
        """Run a tool that the model called; see `Conversation.call_tool`. The result is not added to the turn."""
        session = self.conversation.session
        text = self._memory.call_tool(session, name, arguments, call_id, turn_id=self.id)
        return ToolResult.from_text(text)

    def run_tools(self, message: MessageInput) -> list[dict[str, Any]]:
        """Add an answer of the model that calls tools, run those of memory, and add their results.

        Args:
            message: The answer, as `add` takes it. Without calls it is added, and nothing is run.

        Returns:
            The calls of other tools, in the OpenAI chat form. The program runs them and adds their results.

        Raises:
            SessionError: The value is no message, or the turn is not open.
            DatabaseUnavailable: The messages could not be stored.
        """
        messages = chat_messages(message, "assistant")
        self.add(*messages)
        calls = [call for one in messages for call in one.get("tool_calls", ())]
        own = {schema["name"] for schema in self._memory.tool_schemas()}
        for call in calls:
            if call["function"]["name"] in own:
                result = self.call_tool(call["function"]["name"], call["function"]["arguments"], call["id"])
                self.add({"role": "tool", "tool_call_id": call["id"], "content": result.text})
        return [call for call in calls if call["function"]["name"] not in own]

    def add(self, *messages: MessageInput, native: object = None) -> None:
        """Store messages of the turn, such as tool calls of the model and their results. They are durable on return.

        Args:
            messages: Messages as dicts or as objects of OpenAI's or Anthropic's SDK; a text or content parts are the model's.
                Recall in them is removed, system prompts are left out.
            native: The last message as JSON in the form of a framework. It is stored and given to nobody.

        Raises:
            SessionError: A value is no message, or the turn is not open.
            DatabaseUnavailable: The messages could not be stored.
        """
        chats = [one for message in messages for one in chat_messages(message, "assistant")]
        clean = [self._clean(message) for message in chats if message["role"] not in SYSTEM_ROLES]
        in_text(clean)  # a role that was nothing but recall
        self._require_begun()
        if native is not None and clean:
            clean[-1] = {**clean[-1], "native": native}
        self._open_turns.add(self.id, clean, at=self._memory.sessions.database.now())
        self._messages += clean

    def note_history(self, *messages: MessageInput) -> None:
        """Note messages that the program sends to the model before the person's message. None of them is stored.

        If the conversation does not hold one of them, nobody knows who wrote it: the model counts as having read a text of
        another origin, so that a note of this turn waits.

        Args:
            messages: Messages as `add` takes them; a text is a message of the role "user".

        Raises:
            SessionError: A value is no message.
        """
        history = [one for message in messages for one in chat_messages(message, "user")]
        origin = self._memory.internals.recaller.history_origin(
            self._session, history, [self._user, *self._messages]
        )
        if not may_command(origin):
            self.recall = dataclasses.replace(self.recall, origin=lowest([self.recall.origin, origin]))
            store = partial(self._open_turns.set_contexts, self.id, self.recall.contexts, self.recall.origin)
            self._memory.problem_log.read("origin of the history", store, None)

    def scrub(self, chunk: str, *, end: bool = False) -> str:
        """Return what the person may see of a piece of the model's streamed answer: recall is removed.

        Args:
            chunk: The next piece of the answer. Text that may be the beginning of recall is returned with a later piece.
            end: True for the last piece.
        """
        visible = self._scrubber.feed(chunk)
        return visible + self._scrubber.flush() if end else visible

    def finish(
        self,
        answer: MessageInput | None = None,
        *,
        native: object = None,
        at: float | None = None,
        warm: bool = True,
    ) -> Turn:
        """Store the finished turn and its outbox row in one commit. It is durable and searchable on return.

        Args:
            answer: The model's answer, as `add` takes it; recall that it repeats is removed. Leave it out if `add` stored it.
            native: The answer as JSON in the form of a framework.
            at: Time of the answer in epoch seconds; default: now. The person's message keeps the time that `turn` got.
            warm: True to let providers prepare the recall of the next turn.

        Raises:
            SessionError: The turn was cancelled, has expired, or was undone, or `answer` is no answer.
            DatabaseUnavailable: The turn could not be stored.
        """
        with self._memory.manager.writes.reading():
            return self._finish(answer, native, at, warm)

    def _finish(self, answer: MessageInput | None, native: object, at: float | None, warm: bool) -> Turn:
        self._require_begun()
        context = self._memory.sessions.turns.context(
            self._session.id, self._session.owner, origin=True, turn_id=self.id
        )
        stored = context.open_turn
        # Another process may have added messages to the turn.
        user = {key: value for key, value in self._user.items() if key != "timestamp"}
        messages = [user, *(self._messages if stored is None else stored.messages)]
        answers = [] if answer is None else [_with_words(one) for one in chat_messages(answer, "assistant")]
        answers = [dict(clean_message(message, self.recall.contexts)) for message in answers]
        known = _final_content(messages)
        if not answers or known is None or text_of(known) != text_of(_final_content(answers)):
            messages += answers
        answer = _final_content(messages)
        if answer is None:
            raise SessionError(f"turn {self.id!r} has no answer", "give it to finish, or cancel the turn")
        if native is not None:
            messages[-1] = {**messages[-1], "native": native}
        if stored is None:
            self._require_stored(text_of(answer))
        turn = self._memory.end_turn(
            self._session,
            self._user["content"],
            answer,
            messages=messages,
            turn_id=self.id,
            at=at,
            user_at=self._user.get("timestamp"),
            warm=warm,
            author=self._author,
            recalled_origin=self.recall.origin,
            context=context,
        )
        self.problems = distinct([*self.problems, *self._memory.problem_log.met])
        return turn

    def _require_stored(self, answer: str) -> None:
        """Raise `SessionError` unless the turn is finished with just this answer, by another thread for instance."""
        if not self._memory.sessions.has_turn(self.id):
            raise SessionError(
                f"turn {self.id!r} is not open: it was cancelled, or has expired",
                "begin a new turn; `sessions.turn_expiry_hours` says after how long one expires",
            )
        texts = [text for _, text in self._memory.sessions.turns.messages(self.id)]
        if not texts or texts[-1] != sqlite_text(answer):
            raise SessionError(f"turn {self.id!r} is finished with another answer", "begin a new turn")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Cancel the turn if an exception leaves the `with` block. Without one, a turn that is not finished stays open."""
        if kind is not None:
            self.cancel()

    def cancel(self) -> None:
        """Delete the unfinished turn: the person stopped it, or it failed. No provider hears of it."""
        if self._store_error is None:
            self._open_turns.delete(self.id)
        self._memory.internals.origins.forget(self._session)

    def _clean(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a message without recall. What a tool answered is stored as it was."""
        clean = clean_message(message, self.recall.contexts)
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


def person_message(value: MessageInput) -> tuple[Content, dict[str, Any]]:
    """Return a person's message without recall: its content, and the whole of it in the OpenAI chat form.

    Raises:
        SessionError: The value is no message of a person.
    """
    messages = chat_messages("" if value is None else value, "user")
    if [message["role"] for message in messages] != ["user"]:
        roles = ", ".join(str(message["role"]) for message in messages)
        raise SessionError(
            f"a turn begins with one message of the person, and this is {roles}", "give results to add"
        )
    clean = without_context(messages[0].get("content"))
    return clean, {**messages[0], "content": "" if clean is None else clean}


def _with_words(message: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the words that OpenAI writes beside its content: a refusal, or the transcript of what it spoke."""
    audio = message.get("audio")
    words = message.get("refusal") or (audio.get("transcript") if isinstance(audio, Mapping) else None)
    return {**message, "content": words} if words and not message.get("content") else message


def _final_content(messages: Sequence[Mapping[str, Any]]) -> Content:
    """Return the content of the answer that these messages end with; None if they end with none."""
    last = messages[-1]
    content: Content = last.get("content")
    return content if last["role"] == "assistant" and not last.get("tool_calls") else None
