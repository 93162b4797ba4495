"""The provider: hooks, and the tools that the model sees. Threads, deadlines, retries and fences are the host's."""

from __future__ import annotations

import importlib.metadata
import time
import uuid
from collections.abc import Callable, Sequence

from hermes_core import (
    Availability,
    Capabilities,
    Delegation,
    MemoryWrite,
    Query,
    Recall,
    RecallItem,
    Session,
    SessionSwitch,
    Turn,
)
from hermes_core.contract.values import Check, Erasure, MemoryPage, MemoryRecord
from hermes_core.kit import (
    BackendRefused,
    BackendUnavailable,
    Settings,
    bullet_list,
    clip,
    epoch_time,
    fold_space,
    is_trivial,
    key_of,
    later_session,
    local_day,
    pack_record,
    poll,
    storable,
    unpack_record,
)
from hermes_core.recall import count_tokens
from hermes_supermemory.client import MAX_MESSAGE_CHARS, Client, parts_of
from hermes_supermemory.settings import KEY, NAME, SETTINGS, container_of, custom_tags, guidance
from hermes_supermemory.tools import ALIASES, Tools
from hermes_supermemory.values import Document, Hit

RECALL_TIMEOUT_S = 4.0
"""Seconds that recall before a turn may take, both calls together; the host waits for five."""

PROFILE_SHARE = 0.4
"""Share of the budget that the profile may take."""

SHORT_ANSWER = 120
"""Characters of an answer to small talk that makes it no more than that."""

MAX_SESSIONS = 1_000
RECORD = "record"
"""Label of an imported document with the rest of its record."""

EXPORT_WAIT_S = 30.0
"""Seconds that an export waits for the server to read what it took; the host waits for 60."""

SELF_TEST_WAIT = 30.0
SELF_TEST_POLL = 1.0

PROMPT = """# Supermemory
What was learned in earlier conversations, and a profile of the person, come by themselves. Keep what will matter later with
`supermemory_store`; look further with `supermemory_search` and `supermemory_profile`; take back what is wrong with
`supermemory_forget`."""
PROMPT_CONTEXT = """# Supermemory
What was learned in earlier conversations, and a profile of the person, come by themselves."""


class SupermemoryProvider(Tools):
    """Memories and a profile that Supermemory makes of every turn, in a container for each profile and user.

    `clock` and `sleep` are those of the self-test, which waits for the server to read what it wrote.
    """

    name = NAME
    settings = SETTINGS
    commands = "hermes_supermemory.cli:COMMANDS"
    capabilities = Capabilities(tool_aliases=ALIASES)

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._turns: dict[str, int] = {}

    # -------------------------------------------------------------------- setup

    def availability(self, options: Settings) -> Availability:
        """Return whether the SDK is there, and a key for supermemory.ai; a server of one's own may need none."""
        if options.api != "v4" and not _sdk_is_current():
            return Availability.no(
                "the package supermemory 5 is not installed", 'pip install "supermemory>=5,<6"'
            )
        if options.api_key or options.base_url:
            return Availability()
        return Availability.no(
            "api_key is not set, and supermemory.ai asks for one",
            f"set {KEY} in the environment or .env (https://console.supermemory.ai), or base_url to your own server",
        )

    def connect(self, options: Settings) -> Client:
        """Return the client, without asking the server anything."""
        return Client(options.base_url, options.api_key or "", options.api, options.api_timeout)

    def check(self, session: Session) -> Sequence[Check]:
        """Send a document, see that it is read and found in another session, delete it."""
        ns, word = container_of(self.options, session), f"check{uuid.uuid4().hex}"
        later = container_of(self.options, later_session(session))
        doc = f"hermes-{word}"
        self.client.store(ns, doc, f"The hermes self-test wrote the word {word}.", {"type": "self_test"})
        found, status = False, ""

        def over() -> bool:
            nonlocal found, status
            found = any(word in one.text for one in self.client.search(later, word, 5, "hybrid"))
            document = self.client.document(ns, doc)
            status = document.status if document else "gone"
            return found or status == "failed"

        poll(over, SELF_TEST_WAIT, SELF_TEST_POLL, self._clock, self._sleep)
        deleted = self.client.delete(ns, doc)
        where = f"{self.client.place}, container {ns!r}"
        # Reading takes the server's models their time; that it is not over yet is no fault.
        read = status not in ("failed", "gone")
        told = where if found else f"{where}: not found yet, {status or 'being read'}"
        return [Check("write and recall", found or read, told), Check("delete", deleted, where)]

    def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        """Return what was sent to the session's containers word for word, of a session's document each turn.

        What the server made of it stays: another server makes it anew of the same texts.
        """
        tags = ["", *custom_tags(self.options)]
        index, page = map(int, (cursor or "0:1").split(":"))
        ns = container_of(self.options, session, tags[index])
        documents, more = self._documents(ns, page)
        records = tuple(record for document in documents for record in _records(document))
        if more:
            return MemoryPage(records, f"{index}:{page + 1}")
        return MemoryPage(records, f"{index + 1}:1" if index + 1 < len(tags) else "")

    def import_memory(self, record: MemoryRecord, session: Session) -> None:
        """Store a memory as a document of its own, word for word; the server makes memories of it."""
        text = storable(record.text).strip()
        if not text or len(text) > MAX_MESSAGE_CHARS:
            raise BackendRefused(
                f"the text has {len(text):,} characters", f"a document has 1 to {MAX_MESSAGE_CHARS:,}"
            )
        ns = container_of(self.options, session)
        metadata = {"type": "imported", "sm_source": "hermes", RECORD: pack_record(record)}
        date = local_day(record.created_at or record.updated_at)
        self.client.store(ns, _imported(ns, text), text, metadata, guidance(self.options), date)

    # --------------------------------------------------------------------- turn

    def system_prompt_block(self) -> str:
        """Return the purpose of the tools, if there are any."""
        return PROMPT if self.offers_tools else PROMPT_CONTEXT

    def on_turn_start(self, turn_number: int, session: Session) -> None:
        """Remember which turn it is: the profile comes with some of them."""
        self._turns.pop(session.id, None)
        if len(self._turns) >= MAX_SESSIONS:
            self._turns.pop(next(iter(self._turns)))
        self._turns[session.id] = turn_number

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Return memories that fit the message, within the budget, and the profile in the turns that it is due at."""
        options = self.options
        if not (options.auto_recall and self.recalls):
            return Recall()
        turn = self._turns.get(session.id, 1)
        due = turn <= 1 or turn % options.profile_frequency == 0
        asks = not is_trivial(query.text)
        timeout = min(options.api_timeout, RECALL_TIMEOUT_S) / (2 if due and asks else 1)
        ns = container_of(self.options, session)
        static, dynamic = self.client.profile(ns, timeout) if due else ([], [])
        found: list[Hit] = []
        if asks:
            limit, mode = options.max_recall_results, options.search_mode
            found = self.client.search(ns, query.text, limit, mode, options.min_score, timeout)
        return _recall(static, dynamic, found, query.budget)

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """Add the turn to the document of its session."""
        small = is_trivial(turn.user) and len(turn.assistant) <= SHORT_ANSWER
        if self.options.auto_capture and not (small and self.options.capture_mode == "all"):
            self._append(_part(turn.id), _said(turn), turn.user_at or turn.at, session)

    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """Add what a subagent did to the document of the session."""
        if self.options.auto_capture:
            task, result = (
                clip(storable(t), MAX_MESSAGE_CHARS) for t in (delegation.task, delegation.result)
            )
            self._append(
                _part(delegation.id), f"A subagent was asked: {task}\nIt answered: {result}", 0.0, session
            )

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Mirror MEMORY.md and USER.md, a document for each entry."""
        ns = container_of(self.options, session)
        new, old = (_entry(ns, write.target, text) for text in (write.content, write.previous))
        gone = write.action == "add" or self.client.delete(ns, old)
        # With the new entry there, this write came before, and what holds the words may be the new one.
        if not gone and not (write.content.strip() and self.client.document(ns, new)):
            self._forget_entry(ns, write)
        if write.content.strip():
            metadata = {"type": "explicit_memory", "target": write.target, "sm_source": "hermes"}
            text = clip(storable(write.content), MAX_MESSAGE_CHARS)
            self.client.store(ns, new, text, metadata, guidance(self.options))

    def on_session_switch(self, switch: SessionSwitch) -> None:
        """Take turns that the person took back out of the document of their session."""
        if switch.rewound_turns:
            ns = container_of(self.options, switch.old)
            parts = {_part(turn) for turn in switch.rewound_turns}
            self.client.take_back(ns, _conversation(ns, switch.old), parts, local_day(time.time()))

    def forget_user(self, session: Session) -> Erasure:
        """Delete the user's containers: documents, memories and profile."""
        deleted = []
        for tag in ["", *custom_tags(self.options)]:
            ns = container_of(self.options, session, tag)
            if count := self.client.erase(ns):
                deleted.append(f"the container {ns!r} of {self.client.place} with {count} documents")
        return Erasure(tuple(deleted))

    # ------------------------------------------------------------------ private

    def _documents(self, ns: str, page: int) -> tuple[list[Document], bool]:
        """Return a page of documents with their texts. While the server still reads one, its text is not there."""
        documents, more = self.client.documents(ns, page)

        def are_read() -> bool:
            nonlocal documents, more
            if not all(one.content or one.is_read for one in documents):
                documents, more = self.client.documents(ns, page)
            return all(one.content or one.is_read for one in documents)

        if not poll(are_read, EXPORT_WAIT_S, SELF_TEST_POLL, self._clock, self._sleep):
            raise BackendUnavailable(
                f"Supermemory still reads documents of the container {ns!r}",
                "wait a minute, and run the command again",
            )
        return documents, more

    def _append(self, part: str, text: str, at: float, session: Session) -> None:
        ns = container_of(self.options, session)
        metadata = {
            "type": "conversation",
            "sm_source": "hermes",
            "session_id": clip(storable(session.id), 255),
        }
        self.client.append(
            ns, _conversation(ns, session), part, text, metadata, guidance(self.options), local_day(at)
        )

    def _forget_entry(self, ns: str, write: MemoryWrite) -> None:
        """Forget an entry that is not under an id of ours: the one memory that says it, or where only some words of it
        are known, the one that holds them; or else none.
        """
        entry, words = fold_space(storable(write.previous)), fold_space(storable(write.old_text))
        if entry or words:
            found = self.client.search(ns, entry or words, 10, "memories")
            texts = [(one.id, fold_space(one.text)) for one in found]
            meant = [i for i, text in texts if (text == entry if entry else words in text)]
            if len(meant) == 1:
                self.client.forget(ns, meant[0])


def _sdk_is_current() -> bool:
    try:
        return importlib.metadata.version("supermemory").split(".")[0] == "5"
    except importlib.metadata.PackageNotFoundError:
        return False


def _key(*parts: str) -> str:
    return key_of(*parts, length=24)


def _conversation(ns: str, session: Session) -> str:
    return f"hermes-session-{_key(ns, session.id)}"


def _entry(ns: str, target: str, text: str) -> str:
    return f"hermes-entry-{_key(ns, target, fold_space(storable(text)))}"


def _imported(ns: str, text: str) -> str:
    return f"hermes-import-{_key(ns, text)}"


def _records(document: Document) -> list[MemoryRecord]:
    """Return what a document holds as records; an imported one with all that came with it."""
    created, updated = epoch_time(document.created), epoch_time(document.updated)
    packed = document.metadata.get(RECORD)
    records = [MemoryRecord(text, document.id, created, updated) for text in parts_of(document.content)]
    return [unpack_record(packed, record) if isinstance(packed, str) else record for record in records]


def _part(event: str) -> str:
    return key_of(event, length=16)


def _said(turn: Turn) -> str:
    said = (("user", turn.user), ("assistant", turn.assistant))
    return "\n".join(
        f"{role}: {clip(storable(text), MAX_MESSAGE_CHARS)}" for role, text in said if storable(text).strip()
    )


def _recall(static: Sequence[str], dynamic: Sequence[str], found: Sequence[Hit], budget: int) -> Recall:
    """Return facts and memories as one text under three headings, each memory once; `items` are the same as data."""
    share = int(budget * (PROFILE_SHARE if found else 1))
    lasting, current = [*map(fold_space, static)], [*map(fold_space, dynamic)]
    known = {*lasting, *current}
    lines: dict[str, RecallItem] = {}
    for one in found:
        text = fold_space(one.text)
        if text not in known:
            item = RecallItem(text, one.score, one.id, one.session, when=one.when)
            lines.setdefault(f"[{one.when}] {text}" if one.when else text, item)
    parts: list[str] = []
    items = [RecallItem(text) for text in (*lasting, *current)]
    left = budget
    for heading, rows, most in (
        ("About the person:", lasting, share),
        ("Recently:", current, share),
        ("Relevant:", list(lines), budget),
    ):
        cost = count_tokens(f"{heading}\n\n")
        listed = bullet_list(rows, min(left, most) - cost, count_tokens)
        if listed:
            parts.append(f"{heading}\n{listed}")
            left -= cost + count_tokens(listed)
    text = "\n\n".join(parts)
    return Recall(tuple(i for i in (*items, *lines.values()) if i.text in text), text)
