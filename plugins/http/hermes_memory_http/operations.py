"""The operations of the API. The type hints of each are the schemas of its query, its body and its answer."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from starlette.requests import Request

from hermes_core import (
    AsyncConversation,
    AsyncOpenTurn,
    Conversation,
    Memory,
    OpenTurn,
    Session,
    ToolResult,
    Turn,
)
from hermes_core.actions.approval import Approval, WaitingItem
from hermes_core.actions.notes import NoteResult, notes_with_origins
from hermes_core.actions.people import forget_person, report_counts, report_sentences
from hermes_core.aio import Threads
from hermes_core.contract.extensions import PartItem
from hermes_core.contract.values import SessionFields
from hermes_core.conversation import ChatMessages
from hermes_core.errors import SessionError
from hermes_core.forget import forget_user
from hermes_core.kit import redact
from hermes_core.safety.fence import without_context
from hermes_core.sessions.chat_forms import chat_messages
from hermes_core.sessions.open_turns import OpenTurnStore
from hermes_core.sessions.records import StoredSession, sqlite_text, text_of
from hermes_core.sessions.turn_records import turn_record
from hermes_core.turn_recall import RecallReport
from hermes_memory_http import values
from hermes_memory_http.refusals import RequestRefused
from hermes_memory_http.tokens import Scope, Token, TokenStore, fields_of_user

Result = TypeVar("Result")

FORGET_WAIT_S = 15.0
"""Seconds that a deletion waits for the provider, whose request stays in the outbox after that."""

MAX_WAITING = 200
MAX_BEGUN = 1000

# What `Session` has of a chat beside its user: given with the first turn, and stored with the conversation.
CHAT_FIELDS = ("user_name", "chat_id", "chat_name", "chat_type", "thread_id")

_USED_ID = "give each turn an id of its own, as a new UUID"


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of the server.

    Attributes:
        body: Largest number of bytes of a request's body.
        rate: Requests a second of one token in one process, and ten times as many at once.
        open_turns: Largest number of unfinished turns of one person.
    """

    body: int = 4_000_000
    rate: float = 100.0
    open_turns: int = 50


class Service:
    """The memory that this process serves.

    Attributes:
        threads: The threads on which the memory is called.
        begun: Turns that this process has begun, by person, conversation and id. One that is finished here is not read
            again, which would cost as much as to store it.
    """

    def __init__(self, memory: Memory, limits: Limits) -> None:
        self.memory, self.limits = memory, limits
        self.threads, self.tokens = Threads(), TokenStore(memory)
        self.begun: OrderedDict[tuple[str, str, str], AsyncOpenTurn] = OrderedDict()

    def remember(self, call: Call, turn: AsyncOpenTurn) -> None:
        """Remember a turn that begins, and drop the oldest one beyond `MAX_BEGUN`."""
        self.begun[call.owner, call.path["conversation"], turn.id] = turn
        while len(self.begun) > MAX_BEGUN:
            self.begun.popitem(last=False)

    def take(self, call: Call) -> AsyncOpenTurn | None:
        """Return the turn that the path of a request names, once, if this process has begun it."""
        return self.begun.pop((call.owner, call.path["conversation"], call.path["turn"]), None)


class Call:
    """A request with a known token: whose memory it is about, and what it names in its path.

    Args:
        user: The person that the request names; "" for none.

    Raises:
        RequestRefused: The token is of another person, or a program's token comes without a person.
        SessionError: `user` is no id of a user or chat.
    """

    def __init__(
        self, service: Service, token: Token, user: str, path: dict[str, str], request: Request
    ) -> None:
        self.service, self.memory, self.token = service, service.memory, token
        self.path, self.request = path, request
        if token.user is None and not user:
            raise RequestRefused(
                400, "the request names no person", "give the query parameter user, as user=my-app:42"
            )
        if token.user is not None and user not in ("", token.user):
            raise RequestRefused(
                403,
                f"this token is of another person than {user!r}",
                "leave user out, or use that person's token",
            )
        self.fields: SessionFields = fields_of_user(user if token.user is None else token.user)

    @cached_property
    def owner(self) -> str:
        """The person as `Session.owner`, by which the stores know whose a session is."""
        return self.memory.session(**self.fields).owner

    @cached_property
    def session(self) -> Session:
        """A session that stands for the person outside of a conversation. It is not stored."""
        return self.memory.session(**self.fields)

    async def run(self, function: Callable[[], Result]) -> Result:
        """Run a function on a thread. It completes if the client goes away."""
        return await self.service.threads.write(function)

    def conversation(self, name: str = "", new: values.NewTurn | None = None) -> Conversation:
        """Return a conversation of the person, with the chat that it began in.

        Args:
            name: Id of the conversation; default: the one in the path.
            new: The turn that may begin the conversation.

        Raises:
            RequestRefused: The chat of the turn would make the conversation that of somebody else.
        """
        source, title = (new.source, new.title) if new else ("", "")
        make = partial(
            self.memory.conversation, name or self.path["conversation"], source=source, title=title
        )
        own: dict[str, Any] = {**self.fields}
        chat = {name: value for name in CHAT_FIELDS if (value := getattr(new, name, ""))}
        conversation = make(**{**chat, **own})
        stored = self.memory.sessions.meta.identity(conversation.id)
        if known := {name: value for name in CHAT_FIELDS if (value := stored.get(name))}:
            conversation = make(**{**known, **own})
        if conversation.session.owner != self.owner:
            raise RequestRefused(
                422,
                f"{self.owner or 'the person at home'} is in no chat",
                "name a user, as user=my-app:42, whose conversations may be in chats",
            )
        return conversation

    def stored_conversation(self, name: str = "") -> tuple[Conversation, StoredSession]:
        """Return a conversation as `conversation` does. Raise `RequestRefused` if the person has none of this id."""
        conversation = self.conversation(name)
        stored = self.memory.sessions.get_session(conversation.id)
        if stored is None or stored.user != self.owner:
            raise RequestRefused(
                404,
                f"there is no conversation {name or self.path['conversation']!r}",
                "its first turn begins it",
            )
        return conversation, stored

    def open_turn(self, history: int | None = 0) -> OpenTurn:
        """Return the open turn that the path names. Raise `RequestRefused` if there is none in this conversation."""
        turn_id, (conversation, _) = self.path["turn"], self.stored_conversation()
        try:
            return conversation.resume(turn_id, history=history)
        except SessionError as exc:
            finished = self.memory.sessions.has_turn(turn_id)
            raise RequestRefused(
                409 if finished else 404, f"turn {turn_id!r} is not open", exc.remedy
            ) from exc


class Operation(Struct, frozen=True):
    """An operation of the API.

    Attributes:
        name: The `operationId`.
        path: The path, with the names of its parts in braces.
        scope: The permission that a token needs; None for a request without a token.
        run: The function. It is called with a `Call`, and the body or the query that it asks for.
        query: Type of the query; None for none.
        body: Type of the JSON body; None for none.
        answer: Type of the answer; None for a stream of events.
    """

    name: str
    method: str
    path: str
    scope: Scope
    run: Callable[..., Any]
    query: type[values.RequestBody] | None
    body: type[values.RequestBody] | None
    answer: Any

    @property
    def is_stream(self) -> bool:
        """True if the body is read and the answer is written in pieces."""
        return get_origin(self.answer) is AsyncIterator

    @property
    def summary(self) -> str:
        """Summary in a sentence."""
        return (inspect.getdoc(self.run) or "").partition("\n")[0]

    @property
    def description(self) -> str:
        """Text after the summary."""
        return (inspect.getdoc(self.run) or "").partition("\n")[2].strip()


OPERATIONS: list[Operation] = []

Function = TypeVar("Function", bound=Callable[..., Any])

_CONVERSATION = "/v1/conversations/{conversation}"
_TURN = _CONVERSATION + "/turns/{turn}"


def _operation(method: str, path: str, scope: Scope) -> Callable[[Function], Function]:
    """Return a decorator that adds an operation with the types of the function's hints."""

    def add(function: Function) -> Function:
        hints = get_type_hints(function)
        name = function.__name__.rstrip("_")
        operation = Operation(
            name, method, path, scope, function, hints.get("query"), hints.get("body"), hints["return"]
        )
        OPERATIONS.append(operation)
        return function

    return add


# --------------------------------------------------------------------- conversations


@_operation("GET", "/v1/conversations", "read")
def list_conversations(call: Call, query: values.Page) -> values.Conversations:
    """List the conversations of the person, the last active first."""
    if query.before:
        call.stored_conversation(query.before)
    listed = call.memory.sessions.list_sessions(
        user=call.owner, archived=query.archived, limit=query.limit + 1, before=query.before or None
    )
    page = [values.Listed(entry.session, entry.preview) for entry in listed[: query.limit]]
    return values.Conversations(page, page[-1].session.id if len(listed) > query.limit else "")


@_operation("GET", _CONVERSATION, "read")
def get_conversation(call: Call) -> StoredSession:
    """Return a conversation without its messages."""
    return call.stored_conversation()[1]


@_operation("DELETE", _CONVERSATION, "write")
def delete_conversation(call: Call) -> values.Done:
    """Delete a conversation for good.

    The provider keeps what it has taken already; to forget a person includes the provider.
    """
    call.stored_conversation()[0].delete()
    return values.Done(f"conversation {call.path['conversation']} is deleted")


@_operation("POST", _CONVERSATION + "/end", "write")
def end_conversation(call: Call) -> values.Done:
    """End a conversation, and let the provider learn from all of it. A later turn opens it again."""
    call.stored_conversation()[0].end()
    return values.Done(f"conversation {call.path['conversation']} is ended")


@_operation("GET", _CONVERSATION + "/messages", "read")
def list_messages(call: Call, query: values.Part) -> values.Messages:
    """Return the messages of finished turns, oldest first."""
    _, stored = call.stored_conversation()
    messages = call.memory.sessions.get_messages(stored.id, limit=query.limit + 1, offset=query.offset)
    more = len(messages) > query.limit
    return values.Messages(messages[: query.limit], query.offset + query.limit if more else None)


# ----------------------------------------------------------------------------- turns


@_operation("POST", _CONVERSATION + "/turns", "write")
async def begin_turn(call: Call, body: values.NewTurn) -> values.OpenedTurn:
    """Begin a turn with the person's message: recall, and the request for the model.

    The first turn of an id begins the conversation. A repeated request with the same `turn_id` and message returns the open
    turn.
    """
    try:
        return await _begin(call, body)
    except SessionError:
        # The request that this one repeats may have reached a worker that stored the turn meanwhile, and died.
        return await _begin(call, body)


async def _begin(call: Call, body: values.NewTurn) -> values.OpenedTurn:
    conversation = await call.run(partial(_prepare, call, body))
    turn = await AsyncConversation(conversation, call.service.threads).turn(
        body.message,
        turn_id=body.turn_id,
        author=body.author,
        origin=body.origin,
        native=body.native,
        history=body.history,
        read_your_writes=body.read_your_writes,
        at=body.at,
    )
    call.service.remember(call, turn)
    return _opened(turn, body.form)


def _prepare(call: Call, body: values.NewTurn) -> Conversation:
    """Return the conversation of a turn that begins. Raise `RequestRefused` if the turn can't begin."""
    conversation, sessions = call.conversation(new=body), call.memory.sessions
    known = sessions.turns.context(conversation.id, call.owner, turn_id=body.turn_id).open_turn
    if known.session_id != conversation.id if known else sessions.has_turn(body.turn_id):
        raise RequestRefused(409, f"turn {body.turn_id!r} can't begin: its id is used", _USED_ID)
    if known and _stored_texts(body.message, "user") != [_stored_text(known.user.get("content"))]:
        raise RequestRefused(409, f"turn {body.turn_id!r} is open with another message", _USED_ID)
    count = OpenTurnStore(sessions).count(call.owner)
    if count >= call.service.limits.open_turns and known is None:
        raise RequestRefused(
            429,
            f"{count} turns of this person are open",
            "finish or cancel them; unfinished turns expire after `sessions.turn_expiry_hours`",
            {"retry-after": "60"},
        )
    return conversation


def _opened(turn: OpenTurn | AsyncOpenTurn, form: values.Form) -> values.OpenedTurn:
    messages = turn.messages
    system = messages[0]["content"] if messages[0]["role"] == "system" else ""
    return values.OpenedTurn(
        turn.id,
        turn.session.id,
        messages(form),
        system,
        turn.tools(form),
        turn.recall.context,
        turn.recall.origin,
        len(_added(turn)),
        list(map(redact, turn.problems)),
    )


def _added(turn: OpenTurn | AsyncOpenTurn) -> list[dict[str, Any]]:
    """Return the messages after the person's in the OpenAI chat form."""
    messages = list(turn.messages)
    place = next(at for at in range(len(messages) - 1, -1, -1) if messages[at] == turn.request_message)
    return messages[place + 1 :]


@_operation("GET", _TURN, "read")
def get_turn(call: Call, query: values.TurnView) -> values.OpenedTurn:
    """Return an open turn as it is now. Nothing is recalled anew."""
    return _opened(call.open_turn(query.history), query.form)


@_operation("POST", _TURN + "/messages", "write")
def add_messages(call: Call, body: values.MoreMessages) -> values.AddedMessages:
    """Add messages to an open turn: results of tools, steps, answers between them.

    Add what every tool returned, so that memory knows what the model has read.
    """
    # One transaction: of two requests at once, or of one and its repetition, the second sees what the first has stored.
    with call.memory.sessions.transaction():
        turn = call.open_turn()
        added = _added(turn)
        if body.after < len(added):
            new = chat_messages(body.messages, "assistant")
            clean = list(ChatMessages([m if m["role"] == "tool" else without_context(m) for m in new]))
            if added[body.after : body.after + len(clean)] == clean:
                return values.AddedMessages(body.after + len(clean))
        if body.after != len(added):
            raise RequestRefused(
                409,
                f"the turn has {len(added)} messages, and these are to stand after {body.after}",
                "another request added some: get the turn, and add what is missing",
            )
        turn.add(*body.messages)
        return values.AddedMessages(len(_added(turn)))


@_operation("POST", _TURN + "/tools", "write")
def run_tools(call: Call, body: values.ModelCalls) -> values.CallResults:
    """Run the tools of memory that an answer of the model calls, and add the answer and their results to the turn.

    A repeated request runs only the calls without a result, by their ids.
    """
    turn = call.open_turn()
    wanted = [
        made for message in chat_messages(body.message, "assistant") for made in message.get("tool_calls", ())
    ]
    ids = [made["id"] for made in wanted]
    if not wanted or not all(ids) or len(set(ids)) < len(ids):
        raise RequestRefused(
            422, "the answer has no calls, or calls without ids of their own", "give each call an id"
        )
    known = {made["id"] for message in _added(turn) for made in message.get("tool_calls", ())}
    own = {schema["name"] for schema in call.memory.tool_schemas()}
    if known.isdisjoint(ids):
        turn.run_tools(body.message)
    else:
        for made in wanted:
            function = made["function"]
            if function["name"] in own and made["id"] not in _results(turn):
                result = turn.call_tool(function["name"], function["arguments"], made["id"])
                turn.add({"role": "tool", "tool_call_id": made["id"], "content": result.text})
    texts = _results(turn)
    results = [
        values.CallResult(made["id"], result.text, result.ok, result.error)
        for made in wanted
        if made["function"]["name"] in own
        for result in [ToolResult.from_text(texts[made["id"]])]
    ]
    return values.CallResults(
        results, [made for made in wanted if made["function"]["name"] not in own], len(_added(turn))
    )


def _results(turn: OpenTurn) -> dict[str, str]:
    """Return the results of tools in a turn by the ids of their calls."""
    return {
        message["tool_call_id"]: str(message.get("content") or "")
        for message in _added(turn)
        if message["role"] == "tool" and "tool_call_id" in message
    }


@_operation("POST", _TURN + "/finish", "write")
async def finish_turn(call: Call, body: values.FinalAnswer) -> values.FinishedTurn:
    """Finish a turn with the model's answer. When this returns, the turn is durable and searchable.

    A repeated request with the same answer returns the same turn.
    """
    turn = call.service.take(call)
    try:
        turn = turn or AsyncOpenTurn(await call.run(call.open_turn), call.service.threads)
    except RequestRefused as exc:
        if exc.status != 409:
            raise
        return await call.run(partial(_repeated, call, body))
    finished = await turn.finish(body.answer, native=body.native, at=body.at, warm=body.warm)
    return _finished(turn.session.id, finished, turn.problems)


def _repeated(call: Call, body: values.FinalAnswer) -> values.FinishedTurn:
    """Return a turn that was finished before with this answer. Raise `RequestRefused` if it was another one."""
    (conversation, _), turn_id = call.stored_conversation(), call.path["turn"]
    texts = call.memory.sessions.turns.messages(turn_id)
    answers = [] if body.answer is None else list(filter(None, _stored_texts(body.answer, "assistant")))
    refused = RequestRefused(409, f"turn {turn_id!r} is finished with another answer", _USED_ID)
    if not texts or (answers and texts[-1][1] != answers[-1]):
        raise refused
    try:  # stores nothing, and refuses a turn of another conversation
        turn = call.memory.end_turn(
            conversation.session, texts[0][1], texts[-1][1], turn_id=turn_id, at=body.at, warm=False
        )
    except SessionError as exc:
        raise refused from exc
    stored = turn_record(call.memory.sessions, turn_id)
    return msgspec.structs.replace(_finished(conversation.id, turn, []), at=stored.at if stored else turn.at)


def _stored_texts(value: values.Message, role: str) -> list[str]:
    """Return the texts of messages as the store has them."""
    return [_stored_text(message.get("content")) for message in without_context(chat_messages(value, role))]


def _stored_text(content: Any) -> str:
    """Return the text of a content as the store has it."""
    return sqlite_text(text_of(content))


def _finished(conversation: str, turn: Turn, problems: Sequence[str]) -> values.FinishedTurn:
    return values.FinishedTurn(
        turn.id,
        conversation,
        turn.number,
        turn.user,
        turn.assistant,
        turn.at,
        turn.origin,
        list(map(redact, problems)),
    )


@_operation("POST", _TURN + "/cancel", "write")
def cancel_turn(call: Call) -> values.Done:
    """Delete an open turn: the person stopped it, or the model failed. No provider hears of it."""
    call.service.take(call)
    try:
        call.open_turn().cancel()
    except RequestRefused as exc:
        if exc.status != 404 or call.memory.sessions.get_session(call.conversation().id) is None:
            raise
    return values.Done(f"turn {call.path['turn']} is cancelled")


@_operation("POST", _TURN + "/stream", "write")
async def stream_answer(call: Call, query: values.StreamOptions) -> AsyncIterator[tuple[str, Any]]:
    """Clean the model's answer while it comes: recall that the model repeats reaches nobody.

    The body is the answer as text, in pieces of any size. For each piece that the person may see an event `text` comes
    back at once, and at the end an event `finished` with the turn, or `end` without `finish=true`.
    """
    turn = AsyncOpenTurn(await call.run(call.open_turn), call.service.threads)
    return _events(call, turn, query)


async def _events(
    call: Call, turn: AsyncOpenTurn, query: values.StreamOptions
) -> AsyncIterator[tuple[str, Any]]:
    answer = ""
    async for piece in pieces_of(call):
        answer += piece
        if visible := turn.scrub(piece):
            yield "text", {"text": visible}
    if visible := turn.scrub("", end=True):
        yield "text", {"text": visible}
    if not query.finish:
        yield "end", {}
        return
    finished = await turn.finish(answer)
    yield "finished", _finished(turn.session.id, finished, turn.problems)


async def pieces_of(call: Call) -> AsyncIterator[str]:
    """Yield the text of a body as it comes. Raise `RequestRefused` for one that is too large or no UTF-8."""
    import codecs

    decoder, size = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        async for chunk in call.request.stream():
            size += len(chunk)
            if size > call.service.limits.body:
                raise too_large(call.service.limits)
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as exc:
        raise RequestRefused(400, "the answer is no UTF-8", "send text as UTF-8") from exc


def too_large(limits: Limits) -> RequestRefused:
    """Return the refusal of a body that is too large."""
    return RequestRefused(
        413,
        f"the body has more than {limits.body:,} bytes",
        "send less, or start the server with a larger --max-body",
    )


# ---------------------------------------------------------------------------- reading


@_operation("GET", "/v1/tools", "read")
def list_tools(call: Call) -> values.Tools:
    """Return the tools of memory. A turn has them in the form of the model's API."""
    return values.Tools(call.memory.tool_schemas())


@_operation("POST", "/v1/recall", "read")
async def recall(call: Call, body: values.Question) -> RecallReport:
    """Return what a turn with this message would get, and a search in past conversations. Nothing is stored.

    It is for people and programs. What a model shall read, it gets in a turn, so that memory knows what it has read.
    """

    def conversation() -> Conversation:
        if body.conversation:
            return call.conversation(body.conversation)
        return call.memory.conversation(**call.fields)

    chat = AsyncConversation(await call.run(conversation), call.service.threads)
    return await chat.recall(
        body.text,
        limit=body.limit,
        read_your_writes=body.read_your_writes,
        after=body.after or None,
        before=body.before or None,
        at=body.at,
    )


@_operation("GET", "/v1/search", "read")
def search(call: Call, query: values.Search) -> values.Hits:
    """Search the past conversations of the person."""
    past = call.memory.sessions.past
    since, until = (past.read_moment(text) if text.strip() else None for text in (query.since, query.until))
    hits = past.search(
        query.query,
        user=call.owner,
        limit=query.limit,
        role=query.role or None,
        since=since,
        until=until,
        sort=query.sort or None,
    )
    return values.Hits(list(hits), hits.problem)


@_operation("GET", "/v1/problems", "read")
def list_problems(call: Call) -> values.Problems:
    """Return a sentence for each configured part of the memory that does not work."""
    return values.Problems(list(map(redact, call.memory.problems(call.session))))


# ------------------------------------------------------------------------------ notes


@_operation("GET", "/v1/notes", "read")
def list_notes(call: Call) -> values.NoteFiles:
    """Return the notes of the person with their origins."""
    notes = call.memory.curated.of(call.session).read()
    files = []
    for target in notes.files.keys() | notes.problems.keys():
        problem = notes.problems.get(target)
        entries = () if problem else [note.text for note in notes.in_order(target)]
        shown = notes_with_origins(notes, target, entries)
        files.append(values.NoteFile(target, shown, redact(str(problem)) if problem else ""))
    return values.NoteFiles(sorted(files, key=lambda file: file.target))


@_operation("POST", "/v1/notes", "review")
def change_note(call: Call, body: values.NoteChange) -> values.Done:
    """Add, replace or remove a note as the person. No model may call this: a model has the tool `memory` in a turn.

    To add a note that is there already changes nothing.
    """
    if body.action != "add" and not body.handle:
        raise RequestRefused(
            422, f"{body.action!r} needs the handle of a note", "list the notes, which have handles"
        )
    call.memory.manager.initialize_all(call.session, wait=0.0)
    result = call.memory.change_memory(
        body.action, body.target, body.content, body.handle, session=call.session, by_person=True
    )
    changed = NoteResult(result, "", [])
    if not changed.ok:
        raise SessionError(redact(changed.text.rstrip(".")), "correct the change, and send it again")
    return values.Done(changed.text)


@_operation("GET", "/v1/review", "review")
def list_waiting(call: Call) -> values.WaitingItems:
    """List the notes, and items of extensions such as skills, that wait for the person."""
    items = _approval(call).waiting(MAX_WAITING + 1)
    return values.WaitingItems([_waiting(item) for item in items[:MAX_WAITING]], len(items) > MAX_WAITING)


@_operation("POST", "/v1/review/{handle}", "review")
def decide(call: Call, body: values.Decision) -> values.Done:
    """Confirm or reject an item that waits, as the person who has read its text.

    No model may call this: a text that is accepted stands in system prompts.
    """
    approval = _approval(call)
    item = next((item for item in approval.waiting() if item.handle == call.path["handle"]), None)
    if item is None:
        raise RequestRefused(404, f"nothing that waits is {call.path['handle']!r}", "list what waits")
    if _waiting(item).text != body.text:
        raise RequestRefused(
            409, f"{item.handle} has another text than was shown", "show the person the present text"
        )
    return values.Done(approval.accept(item) if body.decision == "accept" else approval.reject(item))


def _approval(call: Call) -> Approval:
    return Approval(call.memory, call.memory.curated.of(call.session), call.session)


def _waiting(item: WaitingItem) -> values.Waiting:
    if isinstance(item, PartItem):
        return values.Waiting(item.handle, item.noun, item.text, item.origin, "", "")
    return values.Waiting(item.handle, item.target, item.entry, item.origin, item.previous, item.flag)


@_operation("POST", "/v1/forget", "forget")
def forget(call: Call, body: values.ForgetRequest) -> values.Forgotten:
    """Delete all that is stored of the person, and ask the provider to forget them too.

    With `dry_run` the report only counts.
    """
    owner = call.owner
    if not owner:
        raise RequestRefused(
            403, "the token is of the person at home", "delete the home to forget that person"
        )
    if body.dry_run:
        report = forget_user(call.memory, owner, dry_run=True)
        return values.Forgotten(False, [f"{report_counts(report)} would be deleted", *report.remaining])
    report, late = forget_person(call.memory, owner, timeout=FORGET_WAIT_S)
    return values.Forgotten(
        report.complete, [redact(line) for line in (*report_sentences(report), late) if line]
    )
