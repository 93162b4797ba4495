"""The Holographic provider: settings, hooks and the model's two tools."""

from __future__ import annotations

import importlib.util
import logging
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from hermes_core import Availability, Capabilities, Field, MemoryWrite, Query, Recall, RecallItem, Session
from hermes_core.contract.values import Check, Erasure, MemoryPage, MemoryRecord
from hermes_core.kit import (
    ConfiguredProvider,
    Range,
    Settings,
    ToolInputInvalid,
    TranscriptReader,
    file_name_of,
    fold_space,
    is_trivial,
    later_session,
    local_day,
    query_text,
    recall_within,
    tool,
)
from hermes_core.recall import count_tokens

if TYPE_CHECKING:
    from hermes_holographic.retrieval import FactMemory
    from hermes_holographic.store import FactStore

log = logging.getLogger(__name__)

NAME = "holographic"
SETTINGS = (
    Field(
        "auto_extract", bool, False, "Keep what you state about yourself and the project when a session ends."
    ),
    Field("default_trust", float, 0.5, "Trust of a new fact.", minimum=0.0, maximum=1.0, clamp=True),
    Field("min_trust_threshold", float, 0.3, "Facts below it are not recalled.", minimum=0.0, maximum=1.0),
    Field("hrr_dim", int, 1024, "Dimensions of a vector, also its bytes.", minimum=128, maximum=16384),
    Field("hrr_weight", float, 0.05, "Share of the vectors in a search's score.", minimum=0.0, maximum=1.0),
    Field(
        "temporal_decay_half_life", float, 0.0, "Days until an old fact counts half; 0: never.", minimum=0.0
    ),
    Field("db_path", str, "$HERMES_HOME/memory_store.db", "Where the facts are."),
    Field("shared", bool, False, "One store of facts for all users of a gateway."),
)

MAX_RECALLED = 10
MAX_FACTS_RECALLED_WHOLE = 200
"""Facts of a memory that may be recalled whole; more do not fit a budget of 1,500 tokens."""

MAX_OPEN = 64
"""Users of a gateway whose facts are held open, each with its vectors."""

MAX_FACT_CHARS = 4000

MAX_EXPORTED = 500
"""Facts of one page of an export."""

Action = Literal["add", "search", "probe", "related", "reason", "contradict", "update", "remove", "list"]
Category = Literal["user_pref", "project", "tool", "general"]
Given = TypeVar("Given")
FactId = Annotated[int, Range(0, 2**63 - 1), "id of a fact, from an earlier result"]

FACT_STORE = """Long-term memory of facts, with trust. Actions: add (content) a fact; search (query) by words; probe
(entity) all about someone or something; related (entity) what connects to it; reason (entities) facts about all of
them at once; contradict finds facts that disagree; update (fact_id) and remove (fact_id); list by trust. Search or
probe before you answer about the person or their projects; add what will matter in later conversations."""
FACT_FEEDBACK = """Say whether a recalled fact was right and useful (helpful) or wrong or outdated (unhelpful); its trust
rises or falls."""
PROMPT = """# Holographic memory
Facts you stored with `fact_store` are recalled by themselves when they fit the message. Use `fact_store` to add lasting
facts and to look further: probe one name, reason over several, contradict to find what disagrees. Rate facts you used
with `fact_feedback`."""


class HolographicProvider(ConfiguredProvider):
    """Facts in `memory_store.db` of the home, shared by all sessions of its person. Uses no network and no key.

    Each user of a gateway has a file of their own beside it. `clock` returns seconds since the epoch; trust
    decays by it.
    """

    name = NAME
    settings = SETTINGS
    capabilities = Capabilities(local=True)
    commands = "hermes_holographic.cli:COMMANDS"

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._open: OrderedDict[str, FactMemory] = OrderedDict()

    # -------------------------------------------------------------- setup

    def read_settings(self, home: Path) -> Settings:
        """Return the settings of a home, also those that Hermes Agent keeps in config.yaml."""
        from hermes_holographic.published import read_settings

        return read_settings(SETTINGS, home, NAME)

    def availability(self, options: Settings) -> Availability:  # noqa: ARG002  they need nothing
        """Return whether numpy is installed; it is looked for, not imported."""
        if importlib.util.find_spec("numpy") is None:
            return Availability.no("numpy is not installed", 'pip install "numpy>=1.26"')
        return Availability()

    def open(self, home: Path, user: str = "") -> FactMemory:
        """Open the facts of a home, or of one user of its gateway: `initialize` without a session, for commands."""
        self.shutdown()
        return self._facts("" if self.apply_settings(home).shared else user)

    def initialize(self, session: Session) -> None:
        """Open the file and load its vectors: about 1 ms a thousand facts."""
        self.open(Path(session.home), session.owner).refresh()

    def backup_paths(self) -> Sequence[str]:
        """Return the databases that settings put outside the home."""
        from hermes_holographic.published import own_file

        home = self.home
        path = database_path(self.options, home)
        found = [own_file(path), users_folder(path)] if not path.is_relative_to(home) else []
        return [str(one) for one in found if one != users_folder(path) or one.is_dir()]

    def check(self, session: Session) -> Sequence[Check]:
        """Add a fact, find it by word and by name in another session, forget it."""
        store, facts = self._facts_of(session).store, self._facts_of(later_session(session))
        word = f"check{uuid.uuid4().hex}"
        fact_id, _ = store.add(
            f"{word} is what the self-test wrote.", "general", entities=[word], source="check"
        )
        try:
            by_word = [fact["fact_id"] for fact in facts.search(word, limit=1)]
            by_name = [fact["fact_id"] for fact in facts.probe(word, limit=1)]
        finally:
            store.remove(fact_id)
        where = str(store.db.path)
        damage = store.db.integrity()
        return [
            Check("write and forget", store.get(fact_id) is None, where),
            Check("recall by word", by_word == [fact_id], where),
            Check("recall by name", by_name == [fact_id], where),
            Check("database", not damage, "; ".join(damage) or where, "restore a backup" if damage else ""),
        ]

    def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        """Return the facts of the session's user, oldest first, each with its trust, its ratings and its times."""
        found = self._facts_of(session).store.records(int(cursor or 0), MAX_EXPORTED)
        more = len(found) == MAX_EXPORTED
        return MemoryPage(tuple(found), found[-1].id if more else "")

    def import_memory(self, record: MemoryRecord, session: Session) -> None:
        """Keep a fact with all that the record says of it. A fact with this text stays as it is."""
        self._facts_of(session).store.import_record(record)

    # --------------------------------------------------------------- turn

    def system_prompt_block(self) -> str:
        """Return the purpose of the two tools."""
        return PROMPT

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Return trusted facts that still hold: all of them if they fit the budget, else those that fit the message.

        Facts that fit the message come first. Small talk gets none.
        """
        from hermes_holographic.language import index_words

        text = query_text(query.text)
        if is_trivial(text) or not index_words(text):
            return Recall()
        trust = self.options.min_trust_threshold
        facts = self._facts_of(session)
        found = facts.search(text, limit=MAX_RECALLED, min_trust=trust, proactive=True)
        ranked = {fact["fact_id"]: _item(fact) for fact in found}
        rest = {fact["fact_id"]: _item(fact) for fact in facts.everything(MAX_FACTS_RECALLED_WHOLE, trust)}
        whole = Recall(tuple((ranked | {i: item for i, item in rest.items() if i not in ranked}).values()))
        if rest and count_tokens(whole.render()) <= query.budget:
            return whole
        return recall_within(ranked.values(), query.budget)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Keep one fact for each entry of MEMORY.md and USER.md. A repeated write changes nothing.

        The fact belongs to the user who had the entry written. Another user of the same files may have it removed.
        """
        store = self._facts_of(session).store
        if write.previous and store.find(write.previous) is None:
            self._forget_elsewhere(write.previous, write.target, store.db.path)
        store.apply_once(write.id, lambda: _mirror(store, write))

    def on_session_end(self, reader: TranscriptReader, session: Session) -> None:
        """Keep the person's statements if `auto_extract` is on. A repeated statement only confirms its fact."""
        if not self.options.auto_extract:
            return
        from hermes_holographic.capture import statements

        for message in reader.messages():
            if message.get("role") == "user":
                for sentence, category in statements(message.get("content") or ""):
                    self._facts_of(session).store.add(
                        sentence,
                        category,
                        source=f"session:{session.id}",
                        conversation=session.id,
                        at=message.get("timestamp") or 0.0,
                    )

    def forget_user(self, session: Session) -> Erasure:
        """Delete the user's file of facts; in one store for all users, the facts of the session.

        The facts are deleted first: a program that has the file open reads none of them any more.
        """
        path = database_path(self.options, self.home, session.owner)
        if self.options.shared:
            count, where = self._facts("").store.forget(session.id), self._facts("").store.db.path
            return Erasure((f"{count} facts in {where}",) if count else ())
        if not path.exists():
            return Erasure()
        count = self._facts(session.owner).store.forget()
        self._open.pop(
            session.owner
        ).store.db.delete()  # a file that stays, because it is open, has no fact any more
        return Erasure((f"{count} facts in {path}" if path.exists() else f"{path} with its {count} facts",))

    def shutdown(self) -> None:
        """Close the files."""
        while self._open:
            self._open.popitem()[1].store.db.close()

    # -------------------------------------------------------------- tools

    @tool(description=FACT_STORE)
    def fact_store(
        self,
        session: Session,
        action: Action,
        content: Annotated[str | None, "the fact, one sentence that stands alone (add, update)"] = None,
        query: Annotated[str | None, "words to search for"] = None,
        entity: Annotated[str | None, "name of a person, project or thing (probe, related)"] = None,
        entities: Annotated[list[str] | None, "names (reason); who the fact is about (add)"] = None,
        fact_id: FactId | None = None,
        category: Category | None = None,
        tags: Annotated[str | None, "comma-separated"] = None,
        trust_delta: Annotated[float, Range(-1, 1), "change of trust (update)"] = 0.0,
        min_trust: Annotated[float | None, Range(0, 1), "leave out facts below; 0.3, for list 0"] = None,
        limit: Annotated[int, Range(1, 50)] = 10,
    ) -> dict[str, Any]:
        """Run one of the nine actions."""
        facts = self._facts_of(session)
        store = facts.store
        scope: dict[str, Any] = {
            "limit": limit,
            "min_trust": self.options.min_trust_threshold if min_trust is None else min_trust,
            "category": category,
        }
        match action:
            case "add":
                return _add(store, _needed("content", content), category, tags, entities, session.id)
            case "update":
                return _update(store, _needed("fact_id", fact_id), content, category, tags, trust_delta)
            case "remove":
                return {"removed": store.remove(_needed("fact_id", fact_id))}
            case "list":
                listed = facts.listing(category, min_trust or 0.0, limit)
                named = [{**fact, "entities": store.entities.names_of(fact["fact_id"])} for fact in listed]
                return _answer("facts", named)
            case "contradict":
                return _answer("results", facts.contradictions(limit=limit, category=category))
            case "search":
                found = facts.search(_needed("query", query), **scope)
            case "probe":
                found = facts.probe(_needed("entity", entity), **scope)
            case "related":
                found = facts.related(_needed("entity", entity), **scope)
            case "reason":
                found = facts.reason(_needed("entities", entities), **scope)
        # Who looks over the memory does not use its facts.
        if session.agent_context != "review":
            store.count_retrievals([fact["fact_id"] for fact in found])
        return _answer("results", found)

    @tool(description=FACT_FEEDBACK)
    def fact_feedback(
        self, session: Session, action: Literal["helpful", "unhelpful"], fact_id: FactId
    ) -> dict[str, Any]:
        """Change a fact's trust by its use."""
        result = self._facts_of(session).store.feedback(fact_id, action == "helpful")
        if result is None:
            raise ToolInputInvalid(f"there is no fact {fact_id}", "send an id from a result")
        return result

    # -------------------------------------------------------------- files

    def _facts_of(self, session: Session) -> FactMemory:
        """Return the facts of the session's user."""
        return self._facts("" if self.options.shared else session.owner)

    def _facts(self, user: str) -> FactMemory:
        # Recall and writes come on two threads: each step is one that no other can come between.
        facts = self._open.get(user) or self._open.setdefault(user, self._load(user))
        with suppress(KeyError):
            self._open.move_to_end(user)  # behind the others: it was used last
        for least_used in list(self._open)[:-MAX_OPEN]:
            if gone := self._open.pop(least_used, None):
                gone.store.db.close()
        return facts

    def _forget_elsewhere(self, entry: str, target: str, here: Path) -> None:
        """Remove the fact that mirrors an entry, in whoever's file it is."""
        from hermes_holographic.published import own_file
        from hermes_holographic.store import FactStore

        options, home = self.options, database_path(self.options, self.home)
        for path in (own_file(home), *sorted(users_folder(home).glob("*.db"))):
            if path != here and path.exists():
                store = FactStore(path, options.hrr_dim, options.default_trust, self.clock)
                with closing(store.db):
                    mirrored = store.containing(entry, f"mirror:{target}")
                    if (fact := store.find(entry)) is not None and fact in mirrored:
                        store.remove(fact)

    def _load(self, user: str) -> FactMemory:
        from hermes_holographic.published import own_file, take_over
        from hermes_holographic.retrieval import FactMemory
        from hermes_holographic.store import FactStore

        options = self.options
        path = database_path(options, self.home, user)
        own = path if user else own_file(path)
        store = FactStore(own, options.hrr_dim, options.default_trust, self.clock)
        if own != path:
            take_over(store, path)
        return FactMemory(
            store, hrr_weight=options.hrr_weight, half_life_days=options.temporal_decay_half_life
        )


def database_path(options: Settings, home: Path, user: str = "") -> Path:
    """Return the file of facts: `db_path` with $HERMES_HOME and ~ filled in, relative to the home. A user's
    file is beside it.
    """
    path = (
        home
        / Path(
            options.db_path.replace("${HERMES_HOME}", "$HERMES_HOME").replace("$HERMES_HOME", str(home))
        ).expanduser()
    )
    return users_folder(path) / f"{file_name_of(user)}.db" if user else path


def users_folder(path: Path) -> Path:
    """Return the folder with the databases of users, beside the home's own at `path`."""
    return path.with_name(f"{path.stem}.users")


# ------------------------------------------------------------------ tools


def _add(
    store: FactStore,
    content: str,
    category: str | None,
    tags: str | None,
    entities: list[str] | None,
    conversation: str,
) -> dict[str, Any]:
    fact_id, _ = store.add(
        _fact_text(content), category or "general", tags or "", entities or (), conversation=conversation
    )
    return {"fact_id": fact_id, "status": "added"}


def _update(
    store: FactStore,
    fact_id: int,
    content: str | None,
    category: str | None,
    tags: str | None,
    trust_delta: float,
) -> dict[str, Any]:
    if content is None and category is None and tags is None and not trust_delta:
        raise ToolInputInvalid("nothing to update", "send content, tags, category or trust_delta")
    text = None if content is None else _fact_text(content)
    done = store.update(fact_id, content=text, tags=tags, category=category, trust_delta=trust_delta)
    return {"updated": done}


# ----------------------------------------------------------------- mirror


def _mirror(store: FactStore, write: MemoryWrite) -> None:
    old = _mirrored(store, write)
    if write.action == "remove":
        if old is not None:
            store.remove(old)
        return
    same = store.find(write.content)
    if old is not None and same in (None, old):
        store.update(old, content=write.content)
        return
    if old is not None:
        store.remove(old)
    category = "user_pref" if write.target == "user" else "general"
    store.add(write.content, category, source=f"mirror:{write.target}")


def _mirrored(store: FactStore, write: MemoryWrite) -> int | None:
    """Return the fact of the entry that this write replaces or removes."""
    if write.action == "add":
        return None
    if write.previous and (known := store.find(write.previous)) is not None:
        return known
    fragment = write.old_text or write.previous
    found = store.containing(fragment, f"mirror:{write.target}") if fragment else []
    if len(found) == 1:
        return found[0]
    log.warning("%d mirrored facts hold the text that write %s %ss", len(found), write.id, write.action)
    return None


def _fact_text(content: str) -> str:
    text = fold_space(content)
    if not text:
        raise ToolInputInvalid("content is empty", "send the fact as a sentence")
    if len(text) > MAX_FACT_CHARS:
        raise ToolInputInvalid(
            f"content has {len(text)} characters, over {MAX_FACT_CHARS}", "send one fact at a time"
        )
    return text


def _needed(name: str, value: Given | None) -> Given:
    """Return the argument of an action that requires it. Raises `ToolInputInvalid` without it."""
    if value is None or value in ("", []):
        raise ToolInputInvalid(f"{name} is missing", f"this action needs {name}")
    return value


def _answer(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: found, "count": len(found)}


def _item(fact: dict[str, Any]) -> RecallItem:
    text = fold_space(fact["content"])
    day = local_day(fact["confirmed_at"])
    when = f"said before, on {day}" if "superseded_by" in fact else day
    return RecallItem(text, fact.get("score"), str(fact["fact_id"]), when=when)
