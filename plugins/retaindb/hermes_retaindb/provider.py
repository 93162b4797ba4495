"""The provider: hooks, and the tools that the model sees. Threads, deadlines, retries and fences are the host's."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, get_args

from hermes_core import Availability, Delegation, MemoryWrite, Query, Recall, RecallItem, Session, Turn
from hermes_core.contract.values import Check, Erasure, MemoryPage, MemoryRecord
from hermes_core.errors import BackendRefused, BackendUnavailable
from hermes_core.kit import (
    Range,
    Settings,
    ToolInputInvalid,
    clip,
    fold_space,
    is_trivial,
    later_session,
    page_of,
    poll,
    recall_within,
    storable,
    tool,
)
from hermes_core.recall import analyse, fold
from hermes_retaindb.client import MAX_HITS, MAX_MEMORY_CHARS, PENDING, STILL_WRITING_S, Client, Memory, Scope
from hermes_retaindb.files import FileTools
from hermes_retaindb.settings import CLOUD, KEY, NAME, SETTINGS, project_of

log = logging.getLogger(__name__)

RECALL_TIMEOUT_S = 4.0
"""Seconds that recall before a turn may take; the host waits for five."""

CONTEXT_TOKENS = 1200
MAX_CONTEXT_CHARS = 20_000
MAX_SHOWN_CHARS = 2_000
MAX_PROFILE_MEMORIES = 100
MAX_PROFILE_MEMORY_CHARS = 320
MAX_HASH_CHARS = 128
SELF_TEST_WAIT = 20.0
SELF_TEST_POLL = 0.5

MemoryType = Literal["factual", "preference", "goal", "instruction", "event", "opinion"]
AnyType = Literal[
    "factual",
    "preference",
    "goal",
    "instruction",
    "event",
    "opinion",
    "relationship",
    "decision",
    "constraint",
]

PROMPT = """# RetainDB memory
What was learned in earlier conversations is recalled by itself when it fits the message. Keep lasting facts with
`retaindb_remember`; look further with `retaindb_search`, `retaindb_context` and `retaindb_profile`; take back what is
wrong with `retaindb_forget`."""
PROMPT_CONTEXT = """# RetainDB memory
What was learned in earlier conversations is recalled by itself when it fits the message."""


class RetainDBProvider(FileTools):
    """Facts that RetainDB extracts from every turn, one project for each profile and one memory for each user."""

    name = NAME
    settings = SETTINGS
    commands = "hermes_retaindb.cli:COMMANDS"

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep

    # -------------------------------------------------------------------- setup

    def availability(self, options: Settings) -> Availability:
        """Return whether there is a key for the cloud, or a server of one's own, which may need none."""
        if options.api_key or options.base_url.rstrip("/") != CLOUD:
            return Availability()
        return Availability.no(
            "api_key is not set, and RetainDB Cloud asks for one",
            f"set {KEY} in the environment or .env (https://retaindb.com), or base_url to a server of your own",
        )

    def connect(self, options: Settings) -> Client:
        """Return the client, without asking the server anything."""
        project = project_of(options, self.home)
        return Client(options.base_url, options.api_key or "", project, options.timeout)

    def check(self, session: Session) -> Sequence[Check]:
        """Have a memory stored, wait until it is, find it in another session, delete it."""
        word = f"check{uuid.uuid4().hex}"
        who, later = self.who(session), self.who(later_session(session))
        self.client.add(f"The hermes self-test of RetainDB wrote the word {word}.", who, "factual", 1.0)
        stored = poll(
            lambda: [one for one in self._holding(word, later) if not one.pending],
            SELF_TEST_WAIT,
            SELF_TEST_POLL,
            self._clock,
            self._sleep,
        )
        where = self.client.place
        if not stored and not self._holding(word, later):
            lost = "look at the server's log: it dropped the memory, or returns it in its own session only"
            return [Check("write and recall", False, where, lost)]
        forgotten = [self.client.forget(memory.id) for memory in stored]
        return [Check("write and recall", True, where), Check("forget", any(forgotten), where)]

    def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        """Return the memories of the session's user. The server gives the list at once, and older ones cut it."""
        found = self.client.profile(self.who(session))
        stored = [one for one in found if not one.pending]
        waiting = [one for one in found if one.pending and one.text not in {other.text for other in stored}]
        records = [MemoryRecord(one.text, one.id, one.at, kind=one.type) for one in [*stored, *waiting]]
        return page_of(records, cursor)

    def import_memory(self, record: MemoryRecord, session: Session) -> None:
        """Have a memory stored as it is, once: the server does so within seconds. It keeps text, type and time."""
        text = record.text.strip()
        if not text or len(text) > MAX_MEMORY_CHARS:
            raise BackendRefused(
                f"the text has {len(text):,} characters", f"RetainDB takes 1 to {MAX_MEMORY_CHARS:,}"
            )
        who = self.who(session)
        if any(one.text == text for one in self.client.search(text, who, MAX_HITS)):
            return
        kind = record.kind if record.kind in get_args(MemoryType) else "factual"
        at = record.created_at or record.updated_at
        self.client.add(text, who, kind, 0.7, f"import {record.key}", at)

    # --------------------------------------------------------------------- turn

    def system_prompt_block(self) -> str:
        """Return the purpose of the tools, if there are any."""
        return PROMPT if self.offers_tools else PROMPT_CONTEXT

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Return memories that fit the message, best first, within its budget; none for small talk."""
        if not self.recalls or is_trivial(query.text):
            return Recall()
        timeout = min(self.options.timeout, RECALL_TIMEOUT_S)
        limit = self.options.max_results
        found = self.client.search(query.text, self.who(session), limit, timeout=timeout)
        return recall_within(
            (
                RecallItem(fold_space(one.text), one.score, one.id, one.session, when=one.when)
                for one in self._fitting(query.text, found)
            ),
            query.budget,
        )

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """Have memories extracted from the turn."""
        said = (("user", turn.user), ("assistant", turn.assistant))
        self.client.ingest(self.who(session), said, turn.at, turn.id, user_at=turn.user_at)

    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """Have memories extracted from what a subagent did."""
        task = fold_space(delegation.task)
        self.client.ingest_outcome(self.who(session), task, delegation.result, delegation.id)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Mirror MEMORY.md and USER.md, a memory for each entry."""
        who = self.who(session)
        for memory in self._mirrored(write, who) if write.action != "add" else ():
            if memory.pending:
                raise BackendUnavailable(
                    f"{memory.text!r} is still being stored", retry_after=STILL_WRITING_S
                )
            self.client.forget(memory.id)
        if write.content.strip():
            kind = "preference" if write.target == "user" else "factual"
            self.client.add(write.content, who, kind, 0.7, write.id)

    def forget_user(self, session: Session) -> Erasure:
        """Delete the memories and the files of the user. What RetainDB keeps of them all the same is named."""
        who = self.who(session)
        counts = {"memories": self.client.forget_all(who), "files": self.forget_files(session)}
        deleted = (
            f"{count} {what} of {who.user!r} ({self.client.place})" for what, count in counts.items() if count
        )
        return Erasure(tuple(deleted), (self.client.keeps_deleted(who),))

    # ----------------------------------- tools; the docstring is what the model reads

    @tool("retaindb_profile")
    def profile(self, session: Session) -> dict[str, Any]:
        """All that is remembered about the person, and what RetainDB has made of you, the agent."""
        who = self.who(session)
        memories = self.client.profile(who)
        agent = self.client.agent(who)
        shown = [_told(memory, MAX_PROFILE_MEMORY_CHARS) for memory in memories[:MAX_PROFILE_MEMORIES]]
        told = {"user_id": who.user, "memories": shown, "count": len(memories)}
        return {**told, "agent": agent} if agent else told

    @tool("retaindb_search")
    def search(
        self,
        query: Annotated[str, "what to look for, in plain words"],
        session: Session,
        top_k: Annotated[int, Range(1, 20), "how many at most"] = 8,
        memory_types: Annotated[list[AnyType] | None, "only memories of these types"] = None,
    ) -> dict[str, Any]:
        """Search what was learned in earlier conversations."""
        found = self.client.search(query, self.who(session), top_k, memory_types)
        return {"results": [{**_told(m), "score": round(m.score, 2)} for m in found], "count": len(found)}

    @tool("retaindb_context")
    def context(
        self,
        query: Annotated[str, "the task or question to prepare for"],
        session: Session,
        reason: Annotated[bool, "also let RetainDB reason about the person; takes seconds"] = False,
        known: Annotated[str | None, "context_hash of an earlier answer: get only what is new since"] = None,
    ) -> dict[str, Any]:
        """Get one text with what matters for a task: facts, preferences, decisions, documents."""
        who = self.who(session)
        # The text that RetainDB puts together holds what the project shares; other people's is not for this one.
        if who.alone:
            context, digest = self.client.context(
                query, who, CONTEXT_TOKENS, clip(storable(known or ""), MAX_HASH_CHARS)
            )
        else:
            found = self._fitting(query, self.client.search(query, who, self.options.max_results))
            context, digest = "\n".join(f"- {fold_space(memory.text)}" for memory in found), ""
        told = {"context": clip(context, MAX_CONTEXT_CHARS), **({"context_hash": digest} if digest else {})}
        answer = self.client.reason(query, who) if reason else None
        return told if answer is None else {**told, "answer": answer}

    @tool("retaindb_remember")
    def remember(
        self,
        content: Annotated[str, "one fact, a sentence that stands alone"],
        session: Session,
        memory_type: MemoryType = "factual",
        importance: Annotated[float, Range(0, 1)] = 0.7,
    ) -> dict[str, Any]:
        """Keep a fact for later conversations. It is found at once, and stored within seconds."""
        text = fold_space(storable(content))
        if len(text) > MAX_MEMORY_CHARS:
            raise ToolInputInvalid(
                f"content has {len(text)} characters, over {MAX_MEMORY_CHARS}", "shorten it"
            )
        return {"stored": text, "id": self.client.add(text, self.who(session), memory_type, importance)}

    @tool("retaindb_forget")
    def forget(self, memory_id: Annotated[str, "id of a memory, from a result"]) -> dict[str, Any]:
        """Delete a memory for good."""
        if memory_id.startswith(PENDING):
            raise ToolInputInvalid(f"{memory_id} is still being stored", "search again in a few seconds")
        if not self.client.forget(memory_id):
            raise ToolInputInvalid(f"there is no memory {memory_id!r}", "send an id from a result")
        return {"forgotten": memory_id}

    # ------------------------------------------------------------------ private

    def _fitting(self, question: str, found: Sequence[Memory]) -> list[Memory]:
        """Return the memories that fit well enough. If the server measured nothing, a common word is enough."""
        floor = self.options.min_score
        terms = {form for term in analyse(question, now=None).terms for form in (term.text, *term.forms)}
        stored = [memory.text for memory in found if not memory.pending]
        return [
            memory
            for memory in found
            if (memory.score >= floor or (memory.unscored and any(t in fold(memory.text) for t in terms)))
            and not (memory.pending and any(text in memory.text for text in stored))
        ]

    def _holding(self, word: str, who: Scope) -> list[Memory]:
        return [memory for memory in self.client.search(word, who, 5) if word in memory.text]

    def _mirrored(self, write: MemoryWrite, who: Scope) -> list[Memory]:
        """Return the memories of the entry that this write replaces or removes."""
        entry, fragment = fold_space(storable(write.previous)), fold_space(storable(write.old_text))
        if not (entry or fragment):
            return []
        new = fold_space(storable(write.content))
        texts = (
            (memory, fold_space(memory.text))
            for memory in self.client.search(entry or fragment, who, MAX_HITS)
        )
        if entry:
            # Others may hold its words too, also the one that took its place when this write came before.
            found = [memory for memory, text in texts if text == entry != new]
        else:
            found = [memory for memory, text in texts if fragment in text != new]
        if not found or (len(found) > 1 and not entry):
            log.warning("%d memories hold the text that write %s %ss", len(found), write.id, write.action)
            return []
        return found


def _told(memory: Memory, longest: int = MAX_SHOWN_CHARS) -> dict[str, Any]:
    told = {"id": memory.id, "content": clip(memory.text, longest), "type": memory.type, "when": memory.when}
    return {name: value for name, value in told.items() if value}
