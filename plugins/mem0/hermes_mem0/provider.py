"""The provider: hooks, and the tools that the model sees. Threads, deadlines, retries and fences are the host's."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

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
    BackendNotFound,
    BackendProvider,
    BackendRefused,
    Range,
    Settings,
    ToolInputInvalid,
    clip,
    epoch_time,
    fold_space,
    is_trivial,
    key_of,
    later_session,
    pack_record,
    poll,
    query_text,
    recall_within,
    storable,
    tool,
    unpack_record,
    utc_time,
)
from hermes_mem0.backend import ID, MAX_MEMORIES, RECORD, SAID, Backend, Note
from hermes_mem0.client import connect
from hermes_mem0.settings import NAME, SETTINGS, availability, mode_of, user_of

log = logging.getLogger(__name__)

MAX_QUERY_CHARS = 2000
MAX_MESSAGE_CHARS = 20_000
MAX_FACT_CHARS = 4000
"""Characters. What is longer is a pasted document, and no embedder reads it to its end."""

MAX_FOUND = 50
"""Memories that the self-test searches among: the largest number that a search of a turn may have."""

CHECK_WAIT = 20.0
"""Seconds that the self-test gives the cloud, which stores after it has answered."""

PROMPT = """# Mem0
What you know about the person from earlier conversations is recalled by itself when it fits the message."""
TOOL_PROMPT = {
    "profile": "`mem0_profile` shows all of it, `mem0_search` looks further, `mem0_conclude` keeps a lasting fact.",
    "edit": "`mem0_search` looks further, `mem0_list` shows all of it; keep lasting facts with `mem0_add`, and correct"
    " them by id with `mem0_update` and `mem0_delete`.",
}

MemoryId = Annotated[str, "id of a memory, from an earlier result"]
Limit = Annotated[int, Range(1, 50), "how many"]


class Mem0Provider(BackendProvider[Backend]):
    """Memories in Mem0, each user's their own."""

    name = NAME
    settings = SETTINGS
    commands = "hermes_mem0.cli:COMMANDS"

    # -------------------------------------------------------------- setup

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        """One call at a time where Mem0's store is files of this process: they bear no more."""
        if mode_of(self.options) != "oss":
            return Capabilities()
        from hermes_mem0.oss import embedded

        in_files = embedded(self.options)
        return Capabilities(serial=in_files, local=in_files)

    def availability(self, options: Settings) -> Availability:
        """Return whether the SDK, the packages of the mode and the keys are there."""
        return availability(options)

    def connect(self, options: Settings) -> Backend:
        """Connect, or open the store: about a second, ten with an embedder in this process."""
        return connect(options, self.home)

    def backup_paths(self) -> Sequence[str]:
        """Return the store's folder if settings put it outside the home."""
        options, home = self.options, self.home
        if mode_of(options) != "oss":
            return []
        from hermes_mem0.oss import configuration, embedded

        store = Path(str(configuration(options, home)["vector_store"]["config"].get("path", home)))
        return [] if not embedded(options) or store.is_relative_to(home) else [str(store)]

    def check(self, session: Session) -> Sequence[Check]:
        """Store a sentence, find it in another session, forget it."""
        user = user_of(self.options, session)
        word = f"check{uuid.uuid4().hex}"
        text = f"{word} is what the self-test wrote."
        self._keep(text, user, word, "check", session)
        try:
            found = self._awaited(text, user_of(self.options, later_session(session)), word)
        finally:
            for one in self.client.stored(user, word, text):
                self.client.delete(one.id)
        left = self.client.stored(user, word, text)
        return [
            Check("write and recall", found, f"{mode_of(self.options)}, {self.client.place}"),
            Check("forget", not left, f"user {user}"),
        ]

    def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        """Return the memories of the session's user; an imported one with all that came with it."""
        found, more = self.client.page(user_of(self.options, session), cursor)
        return MemoryPage(tuple(_record(note) for note in found if note.text), more)

    def import_memory(self, record: MemoryRecord, session: Session) -> None:
        """Store a memory without inference, word for word, with the rest of the record in its metadata."""
        user, key = user_of(self.options, session), key_of("import", record.key)
        if not record.text.strip() or len(record.text) > MAX_MESSAGE_CHARS:
            raise BackendRefused(
                f"the text has {len(record.text):,} characters", f"Mem0 takes 1 to {MAX_MESSAGE_CHARS:,}"
            )
        if not self.client.stored(user, key, record.text):
            about = {**_about(key, "import", session), RECORD: pack_record(record)}
            if said := utc_time(record.created_at or record.updated_at):
                about[SAID] = said
            self.client.add([{"role": "user", "content": record.text}], user, about, infer=False)

    # --------------------------------------------------------------- turn

    def tools(self) -> Sequence[Callable[..., Any]]:
        """Return the set of tools that the setting `tools` names."""
        if self.options.tools == "profile":
            return self.mem0_profile, self.mem0_search, self.mem0_conclude
        return self.mem0_search, self.mem0_add, self.mem0_update, self.mem0_delete, self.mem0_list

    def system_prompt_block(self) -> str:
        """Return what is recalled, and the purpose of the tools."""
        parts = [PROMPT] if self.recalls else ["# Mem0"]
        if self.offers_tools:
            parts.append(TOOL_PROMPT[self.options.tools])
        return "\n".join(parts)

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Return memories that fit the message, best first, within its budget; none for small talk."""
        options = self.options
        if not self.recalls or is_trivial(query.text):
            return Recall()
        found = self.client.search(
            _asked(query.text),
            user_of(options, session),
            options.recall_limit,
            options.min_score,
            rerank=options.rerank,
        )
        return recall_within(
            (
                RecallItem(fold_space(note.text), note.score, note.id, session_id=note.session, when=note.day)
                for note in found
            ),
            query.budget,
        )

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """Extract facts from the turn; without a language model, keep the person's words."""
        said = [("user", turn.user), ("assistant", turn.assistant)]
        if not self._infers:
            said = said[:1] if not is_trivial(turn.user) else []
        messages = [{"role": role, "content": _clean(text)} for role, text in said if text.strip()]
        self._once(messages, turn.id, "turn", session, infer=self._infers, at=turn.user_at or turn.at)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Mirror MEMORY.md and USER.md, a memory for each entry, word for word."""
        user = user_of(self.options, session)
        gone = write.previous or write.old_text if write.action != "add" else ""
        if gone and gone != write.content:
            self._forget_entry(user, write, gone)
        if write.content:
            key = _key(write.target, write.content)
            self._once(_said(write.content), key, write.target, session, infer=False)

    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """Keep what a subagent found out."""
        text = f"Task: {clip(delegation.task, MAX_FACT_CHARS)}\nResult: {clip(delegation.result, MAX_FACT_CHARS)}"
        self._once(_said(text), delegation.id, "delegation", session, infer=self._infers)

    def on_session_switch(self, switch: SessionSwitch) -> None:
        """Forget what came from turns that the person took back."""
        user = user_of(self.options, switch.old)
        for turn_id in switch.rewound_turns:
            self._forget(self.client.stored(user, turn_id, ""))

    def forget_user(self, session: Session) -> Erasure:
        """Forget all memories of the user. If the settings name one user for everybody, those of the session alone."""
        user = user_of(self.options, session)
        shared = user == user_of(self.options, replace(session, user_id=f"{session.user_id}-other"))
        count, kept = self.client.erase(user, storable(session.id) if shared else "")
        memories = f"{count} memor{'y' if count == 1 else 'ies'} of the user {user!r} ({self.client.place})"
        return Erasure((memories,) if count else (), kept)

    # ------------------------------- tools; the docstring is what the model reads

    @tool()
    def mem0_profile(self, session: Session) -> dict[str, Any]:
        """All that is remembered about the person. Use it when a conversation starts or the person asks what you know."""
        found = self.client.listed(user_of(self.options, session), MAX_MEMORIES)
        text = "\n".join(f"- {fold_space(note.text)}" for note in found)
        return {"result": clip(text, 40_000) or "No memories stored yet.", "count": len(found)}

    @tool()
    def mem0_search(
        self,
        query: Annotated[str, "what to look for, in words of its own"],
        session: Session,
        top_k: Limit = 10,
        rerank: Annotated[bool, "rank once more: better, slower (cloud only)"] = False,
    ) -> dict[str, Any]:
        """Look for what is remembered about the person, by meaning. Ask once for each thing you want to know."""
        options = self.options
        found = self.client.search(
            _asked(query), user_of(options, session), top_k, 0.0, rerank=rerank or options.rerank
        )
        return _results(found) if found else {"result": "No relevant memories found."}

    @tool()
    def mem0_conclude(
        self, conclusion: Annotated[str, "one sentence that stands alone"], session: Session
    ) -> dict[str, Any]:
        """Keep a lasting fact about the person, word for word."""
        return self._add(conclusion, session)

    @tool()
    def mem0_add(
        self, content: Annotated[str, "one sentence that stands alone"], session: Session
    ) -> dict[str, Any]:
        """Keep a lasting fact about the person, word for word."""
        return self._add(content, session)

    @tool()
    def mem0_update(
        self, memory_id: MemoryId, text: Annotated[str, "the whole new text"], session: Session
    ) -> dict[str, Any]:
        """Correct a memory."""
        new = _fact(text)
        self.client.update(self._own(memory_id, session), new)
        return {"result": "Memory updated.", "memory_id": memory_id}

    @tool()
    def mem0_delete(self, memory_id: MemoryId, session: Session) -> dict[str, Any]:
        """Forget a memory."""
        self.client.delete(self._own(memory_id, session))
        return {"result": "Memory deleted.", "memory_id": memory_id}

    @tool()
    def mem0_list(self, session: Session, limit: Limit = 50) -> dict[str, Any]:
        """List what is remembered about the person, with ids."""
        return _results(self.client.listed(user_of(self.options, session), limit))

    # ------------------------------------------------------------ private

    def _add(self, text: str, session: Session) -> dict[str, Any]:
        fact = _fact(text)
        user = user_of(self.options, session)
        key = _key("tool", fact)
        if any(note.text == fact for note in self.client.stored(user, key, fact)):
            return {"result": "Fact was stored before."}
        ids = self._keep(fact, user, key, "tool", session)
        return (
            {"result": "Fact stored.", "memory_id": ids[0]} if ids else {"result": "Fact queued for storage."}
        )

    def _own(self, memory_id: str, session: Session) -> str:
        """Return the id if it is a memory of this user. Raises `ToolInputInvalid` if not."""
        missing = ToolInputInvalid(f"there is no memory {memory_id!r}", "send an id from an earlier result")
        try:
            wanted = str(uuid.UUID(memory_id))
            found = self.client.get(wanted)
        except (ValueError, BackendNotFound):
            raise missing from None
        if found.user and found.user != user_of(self.options, session):
            raise missing
        return wanted

    def _once(
        self,
        messages: Sequence[Mapping[str, str]],
        key: str,
        source: str,
        session: Session,
        *,
        infer: bool,
        at: float = 0.0,
    ) -> None:
        """Store, unless an earlier try has done so."""
        user = user_of(self.options, session)
        if messages and not self.client.stored(user, key, messages[0]["content"]):
            about = _about(key, source, session) | ({SAID: utc_time(at)} if at else {})
            self.client.add(messages, user, about, infer=infer)

    def _keep(self, text: str, user: str, key: str, source: str, session: Session) -> list[str]:
        return self.client.add(_said(text), user, _about(key, source, session), infer=False)

    def _forget_entry(self, user: str, write: MemoryWrite, gone: str) -> None:
        """Forget the mirrored entry, known whole or by a piece of it."""
        found = self.client.stored(user, _key(write.target, gone), _clean(gone))
        if not found and not write.previous:
            prefix = _key(write.target, "")[:8]
            entries = [
                n
                for n in self.client.listed(user, MAX_MEMORIES)
                if n.key.startswith(prefix) and gone in n.text
            ]
            found = entries if len(entries) == 1 else []
        if not found:
            log.warning("no mirrored memory holds the text that write %s %ss", write.id, write.action)
        self._forget(found)

    def _forget(self, found: Sequence[Note]) -> None:
        for note in found:
            try:
                self.client.delete(note.id)
            except BackendNotFound:
                continue

    def _awaited(self, text: str, user: str, key: str) -> bool:
        """Return whether a search finds the stored memory."""
        # Self-tests that were killed leave nearly the same text behind, which may rank above this one.
        return poll(
            lambda: any(n.key == key for n in self.client.search(text, user, MAX_FOUND, 0.0)), CHECK_WAIT
        )

    @property
    def _infers(self) -> bool:
        if mode_of(self.options) != "oss":
            return bool(self.options.infer)
        from hermes_mem0.oss import infers

        return infers(self.options)


def _record(note: Note) -> MemoryRecord:
    own = MemoryRecord(
        note.text,
        note.id,
        epoch_time(note.made),
        epoch_time(note.when),
        details={"session": note.session} if note.session else {},
    )
    return unpack_record(note.record, own)


def _clean(text: str) -> str:
    return clip(storable(text), MAX_MESSAGE_CHARS).strip()


def _asked(text: str) -> str:
    return query_text(text, MAX_QUERY_CHARS)


def _fact(text: str) -> str:
    fact = fold_space(_clean(text))
    if len(fact) > MAX_FACT_CHARS:
        raise ToolInputInvalid(f"the text has {len(fact)} characters, over {MAX_FACT_CHARS}", "send one fact")
    return fact


def _said(text: str) -> list[dict[str, str]]:
    clean = _clean(text)
    return [{"role": "user", "content": clean}] if clean else []


def _key(source: str, text: str) -> str:
    """Return a key that the same text of the same source always has; keys of one source begin alike."""
    return key_of(source, length=8) + key_of(_clean(text), length=24)


def _about(key: str, source: str, session: Session) -> dict[str, str]:
    return {ID: key, "source": source, "session": storable(session.id), "channel": session.platform}


def _results(found: Sequence[Note]) -> dict[str, Any]:
    rows = [{"id": note.id, "memory": note.text, "score": note.score, "when": note.day} for note in found]
    return {"results": rows, "count": len(rows)}
