"""Facts in one SQLite file: text with full-text search, entities, slots, trust, and vectors with their revisions.

Every change of a fact is one transaction. `fact_vectors.rev` grows with each change of any vector, also a removal, so
that a reader of any process catches up by reading what is newer than it has seen.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hermes_core.contract.values import MemoryRecord
from hermes_core.errors import BackendRefused, DatabaseCorrupt
from hermes_core.kit import Database, ToolInputInvalid, clip, pack_record, storable, unpack_record
from hermes_core.recall import dense_runs, grams, hebrew_forms, index_text, words
from hermes_holographic import hrr
from hermes_holographic.entities import EntityIndex, gram_token, in_parts, indexed, marks, put_slots
from hermes_holographic.language import content_key, index_words, name_key, named_entities, sentences
from hermes_holographic.schema import MIGRATIONS, WORDS
from hermes_holographic.values import exclude

log = logging.getLogger(__name__)

HELPFUL, UNHELPFUL = 0.05, -0.10
"""What one word of feedback does to trust. Losing it is twice as quick as winning it."""

PRIOR = 4.0
"""Ratings that the trust a fact began with weighs. Its reliability is the mean of the Beta distribution of its counts:
after 30 ratings it puts 98 of 100 pairs in the order of their worth, steps of trust 93 (bench).
"""

_STALE_BATCH = 2000

CATEGORIES = ("user_pref", "project", "tool", "general")

_COUNTS = ("retrieval_count", "helpful_count", "unhelpful_count")

# Above it a time or a count is damage, and SQLite or the calendar refuse it.
_LARGEST = 1e12

Row = dict[str, Any]
Detail = str | int | float | bool

_LATEST = """WITH wanted AS (SELECT DISTINCT subject, attribute FROM fact_slots WHERE fact_id IN ({marks})),
    said AS (SELECT subject, attribute, value, fact_id, row_number() OVER
        (PARTITION BY subject, attribute ORDER BY confirmed_at DESC, fact_id DESC) AS place
        FROM wanted JOIN fact_slots USING (subject, attribute) JOIN facts USING (fact_id))
    SELECT old.fact_id, new.fact_id, old.value, new.value
    FROM fact_slots old JOIN said new USING (subject, attribute)
    WHERE place = 1 AND old.fact_id IN ({marks}) AND old.fact_id != new.fact_id AND old.value != new.value"""
"""Facts beside the latest fact of the same slot that says another value."""

_FACT = f"""f.fact_id, content, category, tags, trust AS trust_score, retrieval_count, helpful_count, created_at,
    updated_at, confirmed_at,
    round(({PRIOR} * prior + helpful_count) / ({PRIOR} + helpful_count + unhelpful_count), 4) AS reliability"""


class FactStore:
    """The facts of one home. Times are seconds since the epoch, trust is from 0 to 1."""

    def __init__(self, path: Path, dim: int, default_trust: float, clock: Callable[[], float]) -> None:
        self.db = Database(path, MIGRATIONS, secure_delete=True)
        self.entities = EntityIndex(self.db)
        self.dim = dim
        self.default_trust = default_trust
        self.clock = clock

    # ------------------------------------------------------------ changes

    def add(
        self,
        content: str,
        category: str,
        tags: str = "",
        entities: Sequence[str] = (),
        source: str = "tool",
        conversation: str = "",
        at: float = 0.0,
    ) -> tuple[int, bool]:
        """Store a fact and return (its id, whether it is new). An equal fact confirms the old one, with the
        new spelling, and the old one keeps its place.

        Args:
            content: The text of the fact.
            category: Category of the fact.
            tags: Comma-separated tags.
            entities: Names that the fact is about, besides those in its text.
            source: Origin of the fact.
            conversation: Id of the conversation to whose end the fact is added; "" for a fact without neighbours.
            at: Time at which it was said, in epoch seconds; default: now.
        """
        now, content, tags = at or self.clock(), storable(content), storable(tags)
        with self.db.transaction() as tx:
            known = self.find(content)
            if known is not None:
                tx.execute(
                    "UPDATE facts SET confirmed_at = max(confirmed_at, ?) WHERE fact_id = ?", (now, known)
                )
                # "hunter2" and "Hunter2!" are one fact, and a correction of it must not be lost.
                if (
                    content
                    != tx.execute("SELECT content FROM facts WHERE fact_id = ?", (known,)).fetchone()[0]
                ):
                    self.update(known, content=content)
                return known, False
            cursor = tx.execute(
                "INSERT INTO facts (content, content_key, category, tags, source, trust, prior, created_at,"
                " updated_at, confirmed_at, conversation, position) VALUES (:content, :key, :category, :tags, :source,"
                " :trust, :trust, :now, :now, :now, :conversation, CASE WHEN :conversation = '' THEN 0 ELSE"
                " (SELECT coalesce(max(position), 0) + 1 FROM facts WHERE conversation = :conversation) END)",
                {
                    "content": content,
                    "key": content_key(content),
                    "category": category,
                    "tags": tags,
                    "source": source,
                    "trust": self.default_trust,
                    "now": now,
                    "conversation": storable(conversation),
                },
            )
            fact_id = int(cursor.lastrowid or 0)
            self._index(fact_id, content, tags, entities)
        return fact_id, True

    def update(
        self,
        fact_id: int,
        *,
        content: str | None = None,
        tags: str | None = None,
        category: str | None = None,
        trust_delta: float = 0.0,
    ) -> bool:
        """Change some parts of a fact, and return whether there is one. New text replaces entities, slots
        and vectors.

        Raises `ToolInputInvalid` if another fact has this content already.
        """
        with self.db.transaction() as tx:
            old = self.get(fact_id)
            if old is None:
                return False
            text = storable(content or old["content"])
            other = self.find(text)
            if other not in (None, fact_id):
                raise ToolInputInvalid(f"fact {other} says that already", f"remove fact {fact_id} instead")
            words = storable(old["tags"] if tags is None else tags)
            now = self.clock()
            tx.execute(
                "UPDATE facts SET content = ?, content_key = ?, tags = ?, category = ?, updated_at = ?,"
                " confirmed_at = ?, trust = max(0.0, min(1.0, trust + ?)), prior = max(0.0, min(1.0, prior + ?))"
                " WHERE fact_id = ?",
                (text, content_key(text), words, category or old["category"], now,
                 now if content else old["confirmed_at"], trust_delta, trust_delta, fact_id),
            )  # fmt: skip
            if (text, words) != (old["content"], old["tags"]):
                given = self.entities.names_of(fact_id, given=True)
                self._unindex(fact_id)
                self._index(fact_id, text, words, given)
        return True

    def remove(self, fact_id: int) -> bool:
        """Delete a fact, and return whether there was one of that id."""
        with self.db.transaction() as tx:
            gone = tx.execute("DELETE FROM facts WHERE fact_id = ?", (fact_id,)).rowcount > 0
            if gone:
                self._unindex(fact_id)
                tx.execute("DELETE FROM imported_facts WHERE fact_id = ?", (fact_id,))
                self._put_vectors(fact_id, None, None)
        return gone

    def forget(self, conversation: str = "") -> int:
        """Delete the facts of a conversation, all facts if it is "", and return their number.

        No deleted text stays in the file: neither in the index of words nor in free pages.
        """
        with self.db.transaction() as tx:
            sql = "SELECT fact_id FROM facts WHERE ? IN ('', conversation)"
            ids = [row[0] for row in tx.execute(sql, (storable(conversation),)).fetchall()]
            for fact_id in ids:
                self.remove(fact_id)
            unused = "entity_id NOT IN (SELECT entity_id FROM fact_entities)"
            keys = f"key NOT IN (SELECT key FROM entity_names WHERE NOT ({unused}))"  # noqa: S608
            for table, condition in (("name_slips", keys), ("entity_names", unused), ("entities", unused)):
                tx.execute(f"DELETE FROM {table} WHERE {condition}")  # noqa: S608  our own words
        if ids:
            self.db.execute("INSERT INTO facts_fts (facts_fts) VALUES ('optimize')")
            self.db.execute("VACUUM")
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return len(ids)

    def feedback(self, fact_id: int, helpful: bool) -> Row | None:
        """Raise or lower a fact's trust, and return old and new values; None if there is no such fact."""
        column = "helpful_count" if helpful else "unhelpful_count"
        with self.db.transaction() as tx:
            old = self.get(fact_id)
            if old is None:
                return None
            tx.execute(
                f"UPDATE facts SET trust = max(0.0, min(1.0, trust + ?)), {column} = {column} + 1,"  # noqa: S608  # one of two names above
                " confirmed_at = CASE WHEN ? THEN ? ELSE confirmed_at END WHERE fact_id = ?",
                (HELPFUL if helpful else UNHELPFUL, helpful, self.clock(), fact_id),
            )
            new = self.get(fact_id) or old
        return {
            "fact_id": fact_id,
            "old_trust": round(old["trust_score"], 4),
            "new_trust": round(new["trust_score"], 4),
            "helpful_count": new["helpful_count"],
        }

    def set_history(
        self,
        fact_id: int,
        *,
        trust: float,
        retrieval_count: int,
        helpful_count: int,
        created_at: float,
        confirmed_at: float,
    ) -> None:
        """Give a copied fact its history from elsewhere. Its trust implies how often it was no help."""
        unhelpful = max(0, round((self.default_trust + HELPFUL * helpful_count - trust) / -UNHELPFUL))
        with self.db.transaction() as tx:
            tx.execute(
                "UPDATE facts SET trust = ?, retrieval_count = ?, helpful_count = ?, unhelpful_count = ?,"
                " created_at = ?, updated_at = ?, confirmed_at = ? WHERE fact_id = ?",
                (
                    trust,
                    retrieval_count,
                    helpful_count,
                    unhelpful,
                    created_at,
                    confirmed_at,
                    confirmed_at,
                    fact_id,
                ),
            )

    def import_record(self, record: MemoryRecord) -> int | None:
        """Store a fact with all fields of the record, and return its id; None if there is a fact with this text.

        Raises:
            BackendRefused: The record has no text, or a fact says the same in another spelling.
        """
        text = storable(record.text)
        if not content_key(text):
            raise BackendRefused(f"the text {clip(text, 80)!r} has no word", "a fact needs one")
        with self.db.transaction() as tx:
            if (known := self.find(text)) is not None:
                row = tx.execute("SELECT content FROM facts WHERE fact_id = ?", (known,)).fetchone()
                if row[0] == text:
                    return None
                raise BackendRefused(f"fact {known} says the same in another spelling", "keep one of the two")
            fields = record.details
            kind = record.kind if record.kind in CATEGORIES else "general"
            names = [name for name in str(fields.get("entities", "")).split("\n") if name]
            source = str(fields.get("source", "import"))
            fact_id, _ = self.add(text, kind, ", ".join(record.tags), names, source)
            made = record.created_at or self.clock()
            changed = record.updated_at or made
            trust = min(1.0, max(0.0, _number(fields, "trust", self.default_trust)))
            tx.execute(
                "UPDATE facts SET trust = ?, prior = ?, retrieval_count = ?, helpful_count = ?, unhelpful_count = ?,"
                " created_at = ?, updated_at = ?, confirmed_at = ?, conversation = ?, position = ? WHERE fact_id = ?",
                (
                    trust,
                    min(1.0, max(0.0, _number(fields, "prior", trust))),
                    *(max(0, int(_number(fields, name, 0))) for name in _COUNTS),
                    made,
                    changed,
                    _number(fields, "confirmed_at", changed),
                    storable(str(fields.get("conversation", ""))),
                    int(_number(fields, "position", 0)),
                    fact_id,
                ),
            )
            tx.execute("INSERT OR REPLACE INTO imported_facts VALUES (?, ?)", (fact_id, pack_record(record)))
        return fact_id

    def records(self, after: int, limit: int) -> list[MemoryRecord]:
        """Return facts with an id above `after`, oldest first."""
        sql = """SELECT f.*, coalesce(i.fields, '') AS fields FROM facts f LEFT JOIN imported_facts i USING (fact_id)
            WHERE f.fact_id > ? ORDER BY f.fact_id LIMIT ?"""
        rows = self.db.execute(sql, (after, limit)).fetchall()
        return [_record(row, self.entities.names_of(row["fact_id"], given=True)) for row in rows]

    def count_retrievals(self, fact_ids: Sequence[int]) -> None:
        """Store that the model got these facts on its request."""
        if fact_ids:
            with self.db.transaction() as tx:
                tx.execute(
                    f"UPDATE facts SET retrieval_count = retrieval_count + 1 WHERE fact_id IN ({marks(fact_ids)})",  # noqa: S608  # marks only
                    fact_ids,
                )

    def apply_once(self, write_id: str, change: Callable[[], object]) -> bool:
        """Run `change` and record `write_id` in one transaction. A recorded id changes nothing."""
        with self.db.transaction() as tx:
            if self.applied(write_id):
                return False
            change()
            tx.execute("INSERT INTO applied_writes VALUES (?, ?)", (write_id, self.clock()))
        return True

    # ------------------------------------------------------------ reading

    def applied(self, write_id: str) -> bool:
        """Return whether `apply_once` has recorded this write."""
        sql = "SELECT 1 FROM applied_writes WHERE write_id = ?"
        return self.db.execute(sql, (write_id,)).fetchone() is not None

    def get(self, fact_id: int) -> Row | None:
        """Return one fact, or None."""
        return next(iter(self.facts([fact_id]).values()), None)

    def find(self, content: str) -> int | None:
        """Return the id of the fact with this content."""
        row = self.db.execute(
            "SELECT fact_id FROM facts WHERE content_key = ?", (content_key(content),)
        ).fetchone()
        return None if row is None else int(row[0])

    def containing(self, fragment: str, source: str) -> list[int]:
        """Return facts of this source whose text has `fragment`, letter for letter."""
        sql = "SELECT fact_id FROM facts WHERE source = ? AND instr(content, ?) > 0 ORDER BY fact_id"
        return [row[0] for row in self.db.execute(sql, (source, storable(fragment)))]

    def facts(
        self, fact_ids: Iterable[int], min_trust: float = 0.0, category: str | None = None
    ) -> dict[int, Row]:
        """Return these facts by id, in the order of the ids, without those below the trust or outside the category."""
        wanted = list(fact_ids)
        found: dict[int, Row] = {}
        for part in in_parts(wanted):
            sql = f"SELECT {_FACT} FROM facts f WHERE f.fact_id IN ({marks(part)})"  # noqa: S608  # marks only
            found.update((row["fact_id"], dict(row)) for row in self.db.execute(sql, part))
        kept = (found[i] for i in wanted if i in found)
        return {
            f["fact_id"]: f
            for f in kept
            if f["trust_score"] >= min_trust and (category is None or f["category"] == category)
        }

    def listing(self, category: str | None, min_trust: float, limit: int) -> list[Row]:
        """Return facts by trust, best first, then newest first."""
        sql = f"""SELECT {_FACT} FROM facts f WHERE trust >= ? AND (? IS NULL OR category = ?)
            ORDER BY trust DESC, f.fact_id DESC LIMIT ?"""  # noqa: S608  # a constant
        return [dict(row) for row in self.db.execute(sql, (min_trust, category, category, limit))]

    def match(
        self, terms: Sequence[str], limit: int, min_trust: float, category: str | None
    ) -> dict[int, float]:
        """Return facts with any of the terms by id, with their BM25 (higher is better), best first."""
        if not terms:
            return {}
        sql = """SELECT f.fact_id, -bm25(facts_fts, 1.0, 0.5) AS score FROM facts_fts
            JOIN facts f ON f.fact_id = facts_fts.rowid
            WHERE facts_fts MATCH ? AND trust >= ? AND (? IS NULL OR category = ?) ORDER BY score DESC LIMIT ?"""
        asked = (" OR ".join(map(_quoted, terms)), min_trust, category, category, limit)
        try:
            rows = self.db.execute(sql, asked).fetchall()
            is_whole = bool(rows) or self._finds_newest()
        except DatabaseCorrupt:  # raised again if more than the index is damaged
            is_whole = False
        if not is_whole:
            log.warning(
                "the index of words of %s did not find what is stored: it was made anew", self.db.path
            )
            self._index_anew()
            rows = self.db.execute(sql, asked).fetchall()
        return {row[0]: row[1] for row in rows}

    def saying(
        self, names: Sequence[str], most: int, min_trust: float, category: str | None
    ) -> dict[int, float]:
        """Return the newest `most` facts with all of these names in their text, each with a confidence of 0."""
        terms = [term for name in names for term in (" ".join(words(name)), *grams(name)[1]) if term]
        if not terms or not all(map(index_words, names)):
            return {}
        sql = """SELECT f.fact_id, f.content FROM facts_fts JOIN facts f ON f.fact_id = facts_fts.rowid
            WHERE facts_fts MATCH ? AND trust >= ? AND (? IS NULL OR category = ?) ORDER BY f.fact_id DESC LIMIT ?"""
        question = f"words : ({' AND '.join(map(_quoted, terms))})"
        rows = self.db.execute(sql, (question, min_trust, category, category, most))
        # The index takes "mel*" and "mels" for "mel".
        return {row[0]: 0.0 for row in rows if all(_named(name_key(row[1]), name) for name in names)}

    def around(self, fact_ids: Iterable[int], before: int, after: int) -> dict[int, Row]:
        """Return facts and their neighbours by id: content, conversation and position in it.

        Args:
            fact_ids: The facts.
            before: Number of positions before each fact whose facts are returned too.
            after: Number of positions after each fact whose facts are returned too.
        """
        ids = json.dumps(list(fact_ids))
        alone = "SELECT fact_id, content, conversation, position FROM facts WHERE fact_id IN (SELECT value FROM json_each(?))"
        near = """SELECT n.fact_id, n.content, n.conversation, n.position FROM json_each(?) w
            CROSS JOIN facts f ON f.fact_id = w.value CROSS JOIN facts n ON n.conversation = f.conversation
            AND n.position BETWEEN f.position - ? AND f.position + ? WHERE f.conversation <> ''"""
        rows = [*self.db.execute(alone, (ids,)), *self.db.execute(near, (ids, before, after))]
        return {row["fact_id"]: dict(row) for row in rows}

    def holding(self, terms: Sequence[str], among: str) -> tuple[int, list[int]]:
        """Return the number of facts with any of the terms, and the ids of those in `among`, a JSON array of ids."""
        if not terms:
            return 0, []
        # One pass over all hits: seeking each id in the index takes longer.
        sql = """SELECT count(*), json_group_array(rowid) FILTER (WHERE rowid IN (SELECT value FROM json_each(?)))
            FROM facts_fts WHERE facts_fts MATCH ?"""
        count, ids = self.db.execute(sql, (among, " OR ".join(map(_quoted, terms)))).fetchone()
        return int(count), json.loads(ids)

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """Return the number of facts with each term."""
        sql = "SELECT count(*) FROM facts_fts WHERE facts_fts MATCH ?"
        return {term: self.db.execute(sql, (_quoted(term),)).fetchone()[0] for term in terms}

    def count(self) -> int:
        """Return the number of facts."""
        return int(self.db.execute("SELECT count(*) FROM facts").fetchone()[0])

    def open_slots(self) -> Iterator[tuple[str, str, str, int]]:
        """Return rows (subject, attribute, value, fact id) of slots with more than one value, the latest
        confirmed first.
        """
        sql = """SELECT s.subject, s.attribute, s.value, s.fact_id FROM fact_slots s JOIN facts f USING (fact_id)
            WHERE (s.subject, s.attribute) IN
                (SELECT subject, attribute FROM fact_slots GROUP BY 1, 2 HAVING count(DISTINCT value) > 1)
            ORDER BY 1, 2, f.confirmed_at DESC, s.fact_id DESC"""
        for row in self.db.execute(sql):
            yield row[0], row[1], row[2], row[3]

    def ids(self) -> list[int]:
        """Return the ids of all facts, oldest first."""
        return [row[0] for row in self.db.execute("SELECT fact_id FROM facts ORDER BY fact_id")]

    def slots_of(self, fact_id: int) -> list[Row]:
        """Return the statements of a fact: subject, attribute, value."""
        sql = "SELECT subject, attribute, value FROM fact_slots WHERE fact_id = ? ORDER BY 1, 2, 3"
        return [dict(row) for row in self.db.execute(sql, (fact_id,))]

    def superseded(self, facts: Mapping[int, Row]) -> dict[int, int]:
        """Return those of these facts that a later one contradicts, each with the latest such fact.

        A confirmed fact is the latest. If the later fact is removed, it supersedes nothing. A text with
        more than one statement stays, because the rest may hold.
        """
        plain = [i for i, fact in facts.items() if says_one_thing(fact["content"])]
        found: dict[int, int] = {}
        for part in in_parts(plain, 450):
            sql = _LATEST.format(marks=marks(part))
            rows = self.db.execute(sql, [*part, *part])
            found.update((row[0], row[1]) for row in rows if exclude(row[2], row[3]))
        return found

    def contents(self, fact_ids: Iterable[int]) -> dict[int, hrr.Phases]:
        """Return the content vectors of these facts that the current encoder made."""
        found: dict[int, hrr.Phases] = {}
        for part in in_parts(list(fact_ids)):
            sql = f"""SELECT fact_id, content FROM fact_vectors WHERE content IS NOT NULL
                AND dim = ? AND encoder = ? AND fact_id IN ({marks(part)})"""  # noqa: S608  # marks only
            rows = self.db.execute(sql, [self.dim, hrr.ENCODER, *part])
            found.update((row[0], np.frombuffer(row[1], np.uint8)) for row in rows)
        return found

    def vectors_since(self, rev: int) -> Iterator[tuple[int, int, hrr.Phases | None]]:
        """Return (rev, fact id, entity vector) of all changes after `rev`, oldest first; None for a vector
        that was removed.
        """
        sql = "SELECT rev, fact_id, dim, encoder, entity FROM fact_vectors WHERE rev > ? ORDER BY rev"
        for row in self.db.execute(sql, (rev,)):
            usable = row["entity"] is not None and (row["dim"], row["encoder"]) == (self.dim, hrr.ENCODER)
            yield row["rev"], row["fact_id"], np.frombuffer(row["entity"], np.uint8) if usable else None

    def encode_stale(self) -> int:
        """Rebuild a batch of vectors of another dimension or encoder, and return their number."""
        # Two ranges of one index instead of "not equal", which would read every row.
        sql = """SELECT f.fact_id, f.content FROM fact_vectors v JOIN facts f USING (fact_id)
            WHERE encoder < :encoder OR encoder > :encoder OR (encoder = :encoder AND (dim < :dim OR dim > :dim))
            LIMIT :limit"""
        parameters = {"encoder": hrr.ENCODER, "dim": self.dim, "limit": _STALE_BATCH}
        rows = self.db.execute(sql, parameters).fetchall()
        if rows:
            with self.db.transaction():
                for fact_id, content in rows:
                    self._encode(fact_id, content)
        return len(rows)

    def stats(self) -> Row:
        """Return counts for status: facts by category, entities, mean trust, vectors."""
        categories = self.db.execute("SELECT category, count(*) FROM facts GROUP BY 1 ORDER BY 1").fetchall()
        one = self.db.execute(
            "SELECT (SELECT count(*) FROM entities), (SELECT avg(trust) FROM facts),"
            " (SELECT count(*) FROM fact_vectors WHERE entity IS NOT NULL)"
        ).fetchone()
        return {
            "facts": self.count(),
            "categories": {row[0]: row[1] for row in categories},
            "entities": one[0],
            "mean_trust": None if one[1] is None else round(one[1], 4),
            "entity_vectors": one[2],
            "dim": self.dim,
            "encoder": hrr.ENCODER,
        }

    # ------------------------------------------------------------ indexes

    def _index(self, fact_id: int, content: str, tags: str, given: Sequence[str]) -> None:
        sql = "INSERT INTO facts_fts (rowid, words, tags) VALUES (?, ?, ?)"
        self.db.execute(sql, (fact_id, indexed(content), index_text(tags)))
        named = named_entities(content)
        self.entities.link(fact_id, given, given=True)
        self.entities.link(fact_id, named.names, given=False)
        self.entities.link(fact_id, self.entities.mentioned(content), given=False)
        for name, alias in named.aliases:
            self._same(name, alias)
        put_slots(self.db, fact_id, content)
        self._encode(fact_id, content)

    def _finds_newest(self) -> bool:
        """Return True if the newest fact is found by its words: SQLite reads zeroed pages as an index of no words."""
        newest = self.db.execute(
            """SELECT fact_id, content, (SELECT max(id) FROM facts_fts_docsize) FROM facts
               ORDER BY fact_id DESC LIMIT 1"""
        ).fetchone()
        if newest is None:
            return True
        fact_id, content, indexed_to = newest
        terms = sorted(index_words(content), key=len)[-3:]
        if indexed_to != fact_id:
            return False
        sql = "SELECT 1 FROM facts_fts WHERE facts_fts MATCH ? AND rowid = ?"
        question = " OR ".join(map(_quoted, terms))
        return not terms or self.db.execute(sql, (question, fact_id)).fetchone() is not None

    def _index_anew(self) -> None:
        """Make the index of words anew from the facts."""
        with self.db.transaction() as tx:
            tx.execute("DROP TABLE IF EXISTS facts_fts")
            tx.execute(WORDS)
            rows = tx.execute("SELECT fact_id, content, tags FROM facts").fetchall()
            tx.executemany(
                "INSERT INTO facts_fts (rowid, words, tags) VALUES (?, ?, ?)",
                [(fact_id, indexed(content), index_text(tags)) for fact_id, content, tags in rows],
            )

    def _unindex(self, fact_id: int) -> None:
        for table, column in (("facts_fts", "rowid"), ("fact_slots", "fact_id")):
            self.db.execute(f"DELETE FROM {table} WHERE {column} = ?", (fact_id,))  # noqa: S608  # names above
        self.entities.unlink(fact_id)

    def _same(self, name: str, alias: str) -> None:
        """Make two names one entity. Facts of the second get their vectors anew when they are next read."""
        merged = self.entities.merge(name, alias)
        if merged is not None:
            self.db.execute(
                "UPDATE fact_vectors SET encoder = '' WHERE fact_id IN"
                " (SELECT fact_id FROM fact_entities JOIN entities USING (entity_id) WHERE key = ?)",
                (merged.into,),
            )
            self.db.execute(
                "UPDATE OR IGNORE fact_slots SET subject = ? WHERE subject = ?", (merged.into, merged.gone)
            )

    def _encode(self, fact_id: int, content: str) -> None:
        keys = self.entities.keys_of(fact_id)
        self._put_vectors(
            fact_id, hrr.content_vector(index_words(content), self.dim), hrr.entity_vector(keys, self.dim)
        )

    def _put_vectors(self, fact_id: int, content: hrr.Phases | None, entity: hrr.Phases | None) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO fact_vectors VALUES"
            " (?, (SELECT coalesce(max(rev), 0) + 1 FROM fact_vectors), ?, ?, ?, ?)",
            (fact_id, self.dim, hrr.ENCODER, _blob(content), _blob(entity)),
        )


def _record(row: sqlite3.Row, entities: Sequence[str]) -> MemoryRecord:
    """Return a fact as other providers get it. What this store knows comes before what came with an import."""
    details: dict[str, Detail] = {name: row[name] for name in (*_COUNTS, "prior", "confirmed_at", "source")}
    details["trust"] = row["trust"]
    if entities:
        details["entities"] = "\n".join(entities)
    if row["conversation"]:
        details |= {"conversation": row["conversation"], "position": row["position"]}
    own = MemoryRecord(
        row["content"],
        str(row["fact_id"]),
        row["created_at"],
        row["updated_at"],
        row["category"],
        tuple(tag.strip() for tag in row["tags"].split(",") if tag.strip()),
        details,
    )
    other = unpack_record(row["fields"], own)
    foreign_kind = other.kind not in ("", *CATEGORIES) and own.kind == "general"
    return replace(own, kind=other.kind if foreign_kind else own.kind, details={**other.details, **details})


def _number(fields: Mapping[str, Detail], name: str, default: float) -> float:
    """Return a number of another provider's, the default if it is none that a database takes."""
    value = fields.get(name, default)
    return float(value) if isinstance(value, int | float) and abs(value) < _LARGEST else default


def _named(text: str, name: str) -> bool:
    """Return whether a text has a name as words of its own; anywhere, in scripts without spaces."""
    ends = "" if dense_runs(name) else r"\b"
    return re.search(rf"{ends}{re.escape(name)}{ends}", text) is not None


def says_one_thing(content: str) -> bool:
    """Return whether a text has one statement, so that nothing else is lost with it."""
    return len(sentences(content)) == 1 and " and " not in content


def idf(frequencies: Mapping[str, int], total: int) -> dict[str, float]:
    """Return the weight of each term: log(1 + N / (n + 0.5)), positive also for a term of every fact."""
    return {term: float(np.log1p(total / (n + 0.5))) for term, n in frequencies.items()}


def _blob(phases: hrr.Phases | None) -> bytes | None:
    return None if phases is None else phases.tobytes()


def _quoted(term: str) -> str:
    """Return one term as FTS5 reads it literally, cut as the facts' text is.

    A Hebrew word also stands for itself with a prefix such as "the" or "in".
    """
    forms = (index_text(form) if words(form) else gram_token(form) for form in (term, *hebrew_forms(term)))
    quoted = ('"' + form.replace('"', '""') + '"' for form in forms)
    return f"({' OR '.join(quoted)})"
