"""The bodies and the queries of requests, and the answers. The OpenAPI document is made out of these classes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from hermes_core.actions.notes import ShownNote
from hermes_core.contract.values import MemoryTarget, Origin
from hermes_core.sessions.records import SearchHit, StoredMessage, StoredSession

TurnId = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9._-]{16,64}$",
        description="Id of the turn, made by the client: a new UUID for each turn, and the same one if a request is repeated.",
    ),
]
ConversationId = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=1_000)]
Moment = Annotated[float, Meta(ge=0, le=253_402_300_799, description="Seconds since the epoch.")]
When = Annotated[
    str,
    Meta(max_length=200, description='A time: an ISO date, or words such as "last week".'),
]
Count = Annotated[int, Meta(ge=1, le=200)]
Offset = Annotated[int, Meta(ge=0, le=1_000_000_000)]
# The schema says that an object may have any keys: generators of clients take it for an empty one otherwise.
Object = Annotated[dict[str, Any], Meta(extra_json_schema={"additionalProperties": True})]
Message = Annotated[
    str | Object | list[Any],
    Meta(
        description="A text, a list of content parts, or a message, in the form of OpenAI's or Anthropic's API."
    ),
]
Form = Literal["openai", "anthropic"]


class RequestBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """A body or a query. An unknown field is refused."""


class PathParts(RequestBody):
    """The parts of a path that name something."""

    conversation: ConversationId = "-"
    turn: TurnId = "-"
    handle: Annotated[str, Meta(min_length=1, max_length=200)] = "-"


class NewTurn(RequestBody):
    """A turn that begins.

    Attributes:
        message: The person's own words.
        author: Name of the person, if several people speak in the conversation.
        origin: Origin of a message that no person wrote, such as "tool" for a mail. It can only be lower than the person's.
        native: The message as JSON in the form of a framework; it is stored and given to nobody.
        history: Largest number of earlier turns in `messages` of the answer.
        read_your_writes: Wait until the provider has taken what was said before.
        form: The model's API for which `messages` and `tools` of the answer are.
        title: Title of a new conversation.
        source: Name of the program in which a new conversation takes place.
        chat_id: Of a new conversation in a group.
    """

    message: Message
    turn_id: TurnId
    author: Text = ""
    origin: Origin | None = None
    native: Any = None
    history: Offset | None = None
    read_your_writes: bool = False
    at: Moment | None = None
    form: Form = "openai"
    title: Text = ""
    source: Text = ""
    user_name: Text = ""
    chat_id: Text = ""
    chat_name: Text = ""
    chat_type: Text = ""
    thread_id: Text = ""


class TurnView(RequestBody):
    """Form in which an open turn is shown."""

    form: Form = "openai"
    history: Offset | None = None


class OpenedTurn(Struct, frozen=True):
    """A turn that is open. Any process that serves this home may finish it.

    Attributes:
        conversation: Id of the conversation, as later requests name it.
        messages: The request for the model: system prompt, history, the message with the recall, and what was added.
        system_prompt: The system prompt, for an API that takes it beside the messages.
        tools: The tools of memory for the model.
        context: The recall in its fence, as it stands in `messages`. Store it nowhere.
        origin: The lowest origin of the recall.
        added: Number of messages that were added after the person's message.
        problems: A sentence for each part of the memory that does not work.
    """

    id: str
    conversation: str
    messages: list[Object]
    system_prompt: str
    tools: list[Object]
    context: str
    origin: Origin
    added: int
    problems: list[str]


class MoreMessages(RequestBody):
    """Messages of a turn: calls of the model and their results, steps, answers between them.

    Attributes:
        messages: The messages, in order.
        after: Number of messages that the turn has so far, `added` of the last answer. A repeated request stores nothing twice.
    """

    messages: Annotated[list[Object], Meta(min_length=1, max_length=500)]
    after: Offset


class AddedMessages(Struct, frozen=True):
    """Messages of a turn that are durable now."""

    added: int


class ModelCalls(RequestBody):
    """An answer of the model that calls tools. It is added to the turn with the results, once for each id of a call."""

    message: Message


class CallResult(Struct, frozen=True):
    """The result of a call of a tool of memory. `error` says why a call failed."""

    call_id: str
    text: str
    ok: bool
    error: str


class CallResults(Struct, frozen=True):
    """The results of calls.

    Attributes:
        results: The results of the tools of memory, which are added to the turn.
        others: The calls of other tools. The client runs them and adds their results.
        added: Number of messages of the turn now.
    """

    results: list[CallResult]
    others: list[Object]
    added: int


class FinalAnswer(RequestBody):
    """The answer that finishes a turn.

    Attributes:
        answer: The model's answer; left out if the last message that was added is the answer.
        warm: Let providers prepare the recall of the next turn.
    """

    answer: Message | None = None
    native: Any = None
    at: Moment | None = None
    warm: bool = True


class FinishedTurn(Struct, frozen=True):
    """A turn that is durable and searchable."""

    id: str
    conversation: str
    number: int
    user: str
    assistant: str
    at: float
    origin: Origin
    problems: list[str]


class StreamOptions(RequestBody):
    """Actions after the last piece of a streamed answer."""

    finish: Annotated[bool, Meta(description="Finish the turn with the whole text, as `finish` does.")] = (
        False
    )


class Page(RequestBody):
    """A page of conversations, the last active first."""

    limit: Count = 20
    before: Annotated[Text, Meta(description="Id of the last conversation of the page before.")] = ""
    archived: bool = False


class Listed(Struct, frozen=True):
    """A conversation in a list, with the beginning of its first message."""

    session: StoredSession
    preview: str


class Conversations(Struct, frozen=True):
    """A page of conversations. `next` is `before` of the next page; "" for the last one."""

    conversations: list[Listed]
    next: str


class Part(RequestBody):
    """A part of the messages of a conversation, oldest first."""

    limit: Count = 100
    offset: Offset = 0


class Messages(Struct, frozen=True):
    """Messages of finished turns, oldest first. `next` is `offset` of the next part; null for the last one."""

    messages: list[StoredMessage]
    next: int | None


class Tools(Struct, frozen=True):
    """The tools of memory: name, description and parameters of each."""

    tools: list[Object]


class Question(RequestBody):
    """A question for recall.

    Attributes:
        conversation: The conversation in which it is asked; its own messages are no past sessions.
        limit: Largest number of results of the search, and of each provider.
    """

    text: Annotated[str, Meta(max_length=100_000)]
    conversation: Text = ""
    limit: Count | None = None
    read_your_writes: bool = False
    after: When = ""
    before: When = ""
    at: Moment | None = None


class Search(RequestBody):
    """A search in the person's past conversations, by words and, with its extension, by meaning."""

    query: Annotated[str, Meta(max_length=10_000)]
    limit: Count = 10
    role: Literal["", "user", "assistant", "tool"] = ""
    since: When = ""
    until: When = ""
    sort: Literal["", "newest", "oldest"] = ""


class Hits(Struct, frozen=True):
    """Messages that answer a search. `problem` says that some may be missing; "" if none are."""

    hits: list[SearchHit]
    problem: str


class NoteFile(Struct, frozen=True):
    """The notes of one file. `problem` says why it can't be read; "" if it can."""

    target: MemoryTarget
    notes: list[ShownNote]
    problem: str


class NoteFiles(Struct, frozen=True):
    """The notes of a person."""

    files: list[NoteFile]


class NoteChange(RequestBody):
    """A change of the notes by the person, whose text stands in their system prompts from then on.

    Attributes:
        content: The new text, for "add" and "replace".
        handle: The note to replace or remove, "entry:" with digits.
    """

    action: Literal["add", "replace", "remove"]
    target: MemoryTarget = "memory"
    content: Annotated[str, Meta(max_length=100_000)] = ""
    handle: Annotated[str, Meta(pattern=r"^(entry:[0-9a-f]{8,64})?$")] = ""


class Done(Struct, frozen=True):
    """A sentence on what was done."""

    message: str


class Waiting(Struct, frozen=True):
    """A note, or an item of an extension such as a skill, that waits for a person.

    Attributes:
        kind: The file of a note, or the noun of the item.
        text: The text that the person reads.
        replaces: The text that a note replaced; "" for a new one.
        flag: What the safety scan found in it; "" for nothing.
    """

    handle: str
    kind: str
    text: str
    origin: Origin
    replaces: str
    flag: str


class WaitingItems(Struct, frozen=True):
    """Items that wait for a person. `more` is True if there is more than this."""

    items: list[Waiting]
    more: bool


class Decision(RequestBody):
    """A person's decision on an item that waits.

    Attributes:
        text: The text exactly as it was shown to the person. The decision is of this text and no other.
    """

    decision: Literal["accept", "reject"]
    text: Annotated[str, Meta(max_length=1_000_000)]


class ForgetRequest(RequestBody):
    """The deletion of all that is stored of a person. `dry_run` counts only."""

    dry_run: bool = False


class Forgotten(Struct, frozen=True):
    """Report of a deletion.

    Attributes:
        complete: True if the home and all providers have forgotten the person.
        report: A sentence for each thing that was or could not be deleted.
    """

    complete: bool
    report: list[str]


class Problems(Struct, frozen=True):
    """A sentence for each configured part of the memory that does not work."""

    problems: list[str]


class Health(Struct, frozen=True):
    """Health of the server: "ok" if this process answers, "ready" if it can use the store."""

    status: Literal["ok", "ready"]
