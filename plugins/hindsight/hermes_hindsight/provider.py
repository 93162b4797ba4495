"""The provider: hooks, and the tools that the model sees. Threads, deadlines, retries and fences are the host's."""

from __future__ import annotations

import importlib.util
import json
import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from hermes_core import (
    Availability,
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
    ConfiguredProvider,
    Settings,
    ToolInputInvalid,
    clip,
    epoch_time,
    is_trivial,
    later_session,
    local_day,
    query_text,
    recall_within,
    tool,
    utc_time,
)
from hermes_hindsight.client import Client
from hermes_hindsight.daemon import Daemon, availability, daemon_of, usual_url
from hermes_hindsight.documents import (
    MAX_LABEL_CHARS,
    MAX_TEXT_CHARS,
    day_document,
    entry_id,
    first_day,
    is_of_session,
    mirror_tag,
    operation_id,
    readable,
    session_item,
    texts_of,
    timed,
    turn_item,
    without,
)
from hermes_hindsight.settings import (
    NAME,
    SESSION_TAG,
    SETTINGS,
    bank_config,
    bank_of,
    embedded,
    labels,
    words,
)

log = logging.getLogger(__name__)

READ_AT_ONCE = 50
"""Documents of one page of an export, each of which is a request."""

MAX_SESSIONS = 1000
"""Sessions whose first day is known; beyond them it is looked up again."""

STILL_STORED = 3.0
"""Seconds after which to ask again for a turn that the server still works on."""

PROMPTS = {
    "hybrid": """# Hindsight memory
What fits the message is recalled by itself. Look further with `hindsight_recall`, ask for an answer from all that is known
with `hindsight_reflect`, and keep lasting facts with `hindsight_retain`.""",
    "context": """# Hindsight memory
What is known from earlier conversations is recalled by itself when it fits the message, and each turn is kept.""",
    "tools": """# Hindsight memory
Look for what is known from earlier conversations with `hindsight_recall`, ask for an answer from it with
`hindsight_reflect`, and keep lasting facts with `hindsight_retain`. Nothing is recalled by itself.""",
}


class HindsightProvider(ConfiguredProvider):
    """Turns go into one document a session; the server extracts facts and observations, which are recalled."""

    name = NAME
    settings = SETTINGS
    commands = "hermes_hindsight.cli:COMMANDS"

    def __init__(self) -> None:
        self._client: Client | None = None
        self._daemon: Daemon | None = None
        self._configured: set[str] = set()
        # Day of the first turn in a session's own document, by bank and session.
        self._first_days: dict[tuple[str, str], str] = {}

    # -------------------------------------------------------------- setup

    @property
    def start_timeout(self) -> float:
        """Seconds that the start of a server here may take; one that runs elsewhere is not waited for."""
        return float(self.options.start_timeout) if embedded(self.options) else 0.0

    @property
    def mode(self) -> str:
        """The recall mode, by the name that users of Hindsight know."""
        return str(self.options.memory_mode)

    def availability(self, options: Settings) -> Availability:
        """Return whether the SDK is there, and what the mode needs: a key for the cloud, hindsight-embed
        for a server here.
        """
        if importlib.util.find_spec("hindsight_client") is None:
            return Availability.no(
                "hindsight-client is not installed", 'pip install "hindsight-client>=1.1,<2"'
            )
        return availability(options)

    async def open(self, home: Path) -> Client:
        """Open the client for a home and return it: `initialize` without a session, for commands."""
        await self.close()
        options = self.apply_settings(home)
        labels(options, Session(""))
        if embedded(options):
            self._daemon = self._daemon or daemon_of(options, home)
            url, unreachable = await self._daemon.ready(options.start_timeout), self._daemon.start
        else:
            url, unreachable = options.api_url or usual_url(options), lambda: None
        self._client = Client(url, options.api_key, options.timeout, unreachable)
        return self._client

    async def initialize(self, session: Session) -> None:
        """Make the client; nothing is asked of a server that runs elsewhere."""
        await self.open(Path(session.home))

    def backup_paths(self) -> Sequence[str]:
        """Return the files of a server here that are outside the home: its settings and its Postgres."""
        if not embedded(self.options) or self.options.database_url:
            return []
        return [str(Path.home() / name) for name in (".hindsight", ".pg0")]

    async def check(self, session: Session) -> Sequence[Check]:
        """Keep a sentence, recall it in another session, delete it; and what the server failed to store."""
        bank, word = bank_of(self.options, session), f"check{uuid.uuid4().hex[:12]}"
        later = bank_of(self.options, later_session(session))
        apart = later != bank
        where = f"{self.client.url}, Hindsight {await self.client.version()}, bank {bank!r}"
        sentence, tags = f"The word of the self-test is {word}.", [f"check:{word}"]
        try:
            await self.client.retain(bank, {"content": sentence, "tags": tags}, document=word)
            written = await self.client.document(bank, word) == sentence
            # With a bank for each session, another session has nothing to recall, as the settings want it.
            found = await self.client.recall(
                bank if apart else later, sentence, tags=tags, tags_match="all_strict"
            )
        finally:
            await self.client.forget(bank, word)
        gone = await self.client.document(bank, word) is None
        failed = await self.client.operations(bank, "failed", 100)
        return [
            Check("write", written, where),
            Check(
                "recall",
                bool(found),
                f"{len(found)} memor{'y' if len(found) == 1 else 'ies'} from one sentence"
                + (_APART if apart else ""),
                "" if found else _NO_FACTS,
            ),
            Check("delete", gone, where),
            Check(
                "extraction",
                not failed,
                f"{len(failed)} operation{'' if len(failed) == 1 else 's'} failed on the server",
                _RETRY if failed else "",
            ),
        ]

    # --------------------------------------------------------------- turn

    async def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        """Return the documents of the bank word for word, of a session's document each message. Facts that the server
        made of them stay: it makes them again. A bank that all users share is the person's at home.
        """
        bank = bank_of(self.options, session)
        if session.owner and bank == bank_of(self.options, at_home(session)):
            return MemoryPage()
        offset = int(cursor or 0)
        documents, total = await self.client.page(bank, offset, READ_AT_ONCE)
        records = []
        for document in documents:
            for text, at in texts_of(await self.client.document(bank, document.id) or ""):
                made, changed = (
                    epoch_time(str(time or "")) for time in (document.created_at, document.updated_at)
                )
                records.append(MemoryRecord(text, document.id, at or made, at or changed))
        end = offset + len(documents)
        return MemoryPage(tuple(records), str(end) if documents and end < total else "")

    async def import_memory(self, record: MemoryRecord, session: Session) -> None:
        """Keep a memory in a document of its own, word for word; the server makes facts of it. Waits for that."""
        text = record.text.strip()
        if not text or len(text) > MAX_TEXT_CHARS:
            raise BackendRefused(
                f"the text has {len(text):,} characters", f"a document has 1 to {MAX_TEXT_CHARS:,}"
            )
        bank, document = await self._bank(session), entry_id("import", text)
        if await self.client.document(bank, document) is None:
            item = {
                **labels(self.options, session),
                "content": text,
                "context": "a memory of another provider",
                **timed(utc_time(record.created_at or record.updated_at)),
            }
            await self.client.retain(bank, item, document=document)

    def system_prompt_block(self) -> str:
        """Return what is recalled, and the purpose of the tools."""
        return PROMPTS[self.mode]

    async def prefetch(self, query: Query, session: Session) -> Recall:
        """Return memories that fit the message, within its budget; none for small talk."""
        options = self.options
        if not (self.recalls and options.auto_recall) or is_trivial(query.text):
            return Recall()
        asked, bank = query_text(query.text, options.recall_max_input_chars), bank_of(options, session)
        tokens, began = min(query.budget, options.recall_max_tokens), time.monotonic()
        found = await self._recall(bank, asked, tokens, query.now)
        # Asked about what it knows nothing of, the server's model says so at length.
        if found and options.recall_prefetch_method == "reflect":
            left = options.recall_timeout - (time.monotonic() - began)
            found = await self._reflected(bank, asked, tokens, left) or found
        if found and options.recall_prompt_preamble:
            return Recall(text=f"{options.recall_prompt_preamble}\n{found.render()}")
        return found

    async def sync_turn(self, turn: Turn, session: Session) -> None:
        """Append the turn to its session's document of that day. What both sides said, no tools and no recall."""
        if self.options.auto_retain and turn.said:
            item = {**turn_item(self.options, turn), **labels(self.options, session), "update_mode": "append"}
            await self._keep(session, item, await self._document_of(turn, session), turn.id)

    async def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Mirror MEMORY.md and USER.md, a document for each entry. Waits for the server: a removal may follow at once."""
        bank, kept = await self._bank(session), ""
        outdated = await self._replaced(bank, write)
        if write.content.strip():
            told, kept = labels(self.options, session), entry_id(write.target, write.content)
            item = {
                **told,
                "content": clip(write.content, MAX_TEXT_CHARS),
                "context": "a note about the user" if write.target == "user" else "a note of the agent",
                "tags": [*told["tags"], mirror_tag(write.target)],
            }
            await self.client.retain(bank, item, document=kept)
        for document in outdated:
            if document != kept:
                await self.client.forget(bank, document)

    async def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """Keep what a subagent was asked and what it found, in a document of its own."""
        if self.options.auto_retain and delegation.result.strip():
            text = f"Task: {delegation.task}\nResult: {delegation.result}"
            item = {
                "content": clip(text, MAX_TEXT_CHARS),
                "context": "a task that a subagent did for the agent",
            }
            document = f"{session.id}:delegation:{delegation.id}"
            await self._keep(session, {**item, **labels(self.options, session)}, document, delegation.id)

    async def on_session_switch(self, switch: SessionSwitch) -> None:
        """Take turns that the person took back out of their document. Nothing else is held for a session."""
        if not switch.rewound_turns:
            return
        bank, document = await self._bank(switch.old), switch.old.id
        for turn_id in switch.rewound_turns:
            if await self.client.is_processing(bank, operation_id(bank, turn_id)):
                raise BackendUnavailable(
                    f"turn {turn_id!r} is still being stored, so it can't be taken back yet",
                    retry_after=STILL_STORED,
                )
        turns = frozenset(switch.rewound_turns)
        documents = [document]
        for other in await self.client.documents(bank, [f"{SESSION_TAG}{document}"]):
            if other != document and is_of_session(other, document):
                documents.append(other)
        for one in documents:
            left = without(await self.client.document(bank, one) or "", turns)
            if left == []:
                await self.client.forget(bank, one)
            elif left is not None:
                item = {**session_item(self.options, left), **labels(self.options, switch.old)}
                await self._keep(switch.old, {**item, "update_mode": "replace"}, one, f"{switch.id}:{one}")

    async def forget_user(self, session: Session) -> Erasure:
        """Delete the bank of the user; in a bank that others use too, the documents of the session."""
        bank, options = bank_of(self.options, session), self.options
        if await self.client.is_busy(bank):
            raise BackendUnavailable(f"the bank {bank!r} is still worked on", retry_after=STILL_STORED)
        place = f"the bank {bank!r} at {self.client.url}"
        if bank != bank_of(options, replace(session, user_id=f"{session.user_id}-other")):
            _, total = await self.client.page(bank, 0, 1)
            await self.client.forget_bank(bank)
            self._configured.discard(bank)
            return Erasure(
                (f"{place} with its {total} document{'' if total == 1 else 's'}",) if total else ()
            )
        count = 0
        while documents := await self.client.documents(bank, [f"{SESSION_TAG}{session.id}"]):
            for document in documents:
                await self.client.forget(bank, document)
            count += len(documents)
        return Erasure((f"{count} document{'' if count == 1 else 's'} in {place}",) if count else ())

    async def shutdown(self) -> None:
        """Close the client, and stop the server if we started it."""
        await self.close()
        if self._daemon is None or not self._daemon.ours or not self.options.stop_daemon:
            return
        if trouble := await self._daemon.stop():
            log.warning("hindsight-embed was not stopped: %s", trouble)

    # ------------------------------- tools; the docstring is what the model reads

    @tool()
    async def hindsight_retain(
        self,
        content: Annotated[str, "the fact or event, in sentences that stand alone"],
        session: Session,
        context: Annotated[str | None, "what it is about, in a few words"] = None,
        tags: Annotated[list[str] | None, "labels to find it by"] = None,
    ) -> str:
        """Keep something in long-term memory: a fact, a preference, a decision, an event."""
        bank, told = await self._bank(session), labels(self.options, session)
        item = {
            "content": clip(content, MAX_TEXT_CHARS),
            "context": clip(context or "", MAX_LABEL_CHARS),
            **told,
        }
        item["tags"] = [*told["tags"], *(clip(tag, MAX_LABEL_CHARS) for tag in tags or ())]
        # A new id each time: the same fact, told again after it was deleted, is to be kept again.
        operation = str(uuid.uuid4()) if self.options.retain_async else None
        await self.client.retain(bank, item, document=entry_id("retain", content), operation=operation)
        return "Memory stored; it can be recalled in a moment." if operation else "Memory stored."

    @tool()
    async def hindsight_recall(
        self, query: Annotated[str, "a question or words to look for"], session: Session
    ) -> str:
        """Look in long-term memory: facts and observations from earlier conversations, best first."""
        asked, options = _asked(query), self.options
        found = await self._recall(
            bank_of(options, session), asked, options.recall_max_tokens, 0.0, tool=True
        )
        lines = [f"{n}. {_dated(item)}" for n, item in enumerate(found.items, 1)]
        return "\n".join(lines) or "No relevant memories found."

    @tool()
    async def hindsight_reflect(self, query: Annotated[str, "a question"], session: Session) -> str:
        """Get an answer reasoned from all that long-term memory holds. Slower than hindsight_recall."""
        bank = bank_of(self.options, session)
        try:
            return await self.client.reflect(bank, _asked(query), **self._filters()) or "Nothing is known."
        except BackendRefused as exc:
            raise ToolInputInvalid(str(exc), "use hindsight_recall") from exc

    # ------------------------------------------------------------ private

    async def _recall(self, bank: str, query: str, tokens: int, now: float, *, tool: bool = False) -> Recall:
        options = self.options
        types = words(options.recall_types)
        found = await self.client.recall(
            bank,
            query,
            within=None if tool else options.recall_timeout,
            max_tokens=tokens,
            types=types or None,
            # Facts that an observation was made of would say the same again.
            prefer_observations=True if not types or "observation" in types else None,
            min_scores={"final": options.recall_min_score} if options.recall_min_score else None,
            query_timestamp=utc_time(now) or None,
            **self._filters(),
        )
        return recall_within(map(_item, found), tokens)

    async def _reflected(self, bank: str, query: str, tokens: int, within: float) -> Recall:
        """Return the server's answer if it comes in time. A server without a model refuses it."""
        try:
            text = await self.client.reflect(
                bank, query, within=max(within, 0.01), max_tokens=tokens, **self._filters()
            )
        except (BackendUnavailable, BackendRefused) as exc:
            log.info("recall without reflection: %s", exc)
            return Recall()
        return Recall(text=text)

    def _filters(self) -> dict[str, Any]:
        options = self.options
        tags = words(options.recall_tags)
        matched = {"tags": tags, "tags_match": options.recall_tags_match} if tags else {}
        return {"budget": options.recall_budget, **matched}

    async def _keep(self, session: Session, item: dict[str, Any], document: str, event: str) -> None:
        """Retain the item as the settings say, and once: by an operation id, or by a look at the document first."""
        bank = await self._bank(session)
        if self.options.retain_async and await self.client.in_order():
            await self.client.retain(bank, item, document=document, operation=operation_id(bank, event))
            return
        if item.get("update_mode") == "append":
            text = await self.client.document(bank, document)
            if text and json.dumps(event) in text:
                return
        await self.client.retain(bank, item, document=document)

    async def _document_of(self, turn: Turn, session: Session) -> str:
        """Return the document of a turn: that of its session, or that of the session's later day.

        The server gives all that it learns from a document the time of the newest piece. A document for each day keeps
        the days of a long conversation apart.
        """
        day, bank = local_day(turn.user_at or turn.at), bank_of(self.options, session)
        key = bank, session.id
        if key not in self._first_days:
            if len(self._first_days) >= MAX_SESSIONS:
                self._first_days.clear()
            first = first_day(await self.client.document(bank, session.id) or "")
            self._first_days[key] = first or day
        return session.id if day in ("", self._first_days[key]) else day_document(session.id, day)

    async def _bank(self, session: Session) -> str:
        """Return the session's bank for a write, and create it with the configured mission and dispositions
        if necessary.
        """
        bank = bank_of(self.options, session)
        config = bank_config(self.options)
        if config and bank not in self._configured:
            await self.client.configure(bank, config)
            self._configured.add(bank)
        return bank

    async def _replaced(self, bank: str, write: MemoryWrite) -> list[str]:
        """Return the documents of the entry that this write replaces or removes."""
        if write.action == "add":
            return []
        if write.previous:
            return [entry_id(write.target, write.previous)]
        mirrored = await self.client.documents(bank, [mirror_tag(write.target)])
        whole = entry_id(write.target, write.old_text)
        if whole in mirrored:
            return [whole]
        found = [d for d in mirrored if write.old_text in (await self.client.document(bank, d) or "")]
        if len(found) != 1:
            log.warning(
                "%d mirrored entries hold the text that write %s %ss", len(found), write.id, write.action
            )
        return found if len(found) == 1 else []

    async def close(self) -> None:
        """Close the client, if there is one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    @property
    def client(self) -> Client:
        """The open client."""
        if self._client is None:
            raise RuntimeError("HindsightProvider is used before initialize()")
        return self._client


_NO_FACTS = "the server's model found no fact in it; see HINDSIGHT_API_LLM_* of the server"
_APART = "; bank_id_template names {session}, so no session recalls what another one said"
_RETRY = "hermes-memory hindsight operations --retry"


def _item(memory: Any) -> RecallItem:
    said = local_day(str(memory.occurred_start or memory.mentioned_at or ""))
    tagged = next((tag for tag in memory.tags or () if tag.startswith(SESSION_TAG)), "")
    session = tagged.removeprefix(SESSION_TAG)
    score = memory.scores.final if memory.scores else None
    return RecallItem(readable(memory.text), score, memory.id, session_id=session, when=said)


def _dated(item: RecallItem) -> str:
    return f"{item.text} ({item.when})" if item.when else item.text


def _asked(query: str) -> str:
    if not any(letter.isalnum() for letter in query):
        raise ToolInputInvalid(f"query has no word: {query!r}", "send a question, or words to look for")
    return query_text(query, MAX_TEXT_CHARS)


def at_home(session: Session) -> Session:
    """Return a session of the person at home, in the profile of this one."""
    return Session("home", identity=session.identity, workspace=session.workspace, home=session.home)
