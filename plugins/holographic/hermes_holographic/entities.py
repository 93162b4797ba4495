"""The exact index: entities by any of their names, and the facts of each."""

from __future__ import annotations

import sqlite3
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from hermes_core.kit import Database, fold_space
from hermes_core.recall import dense_runs, fold, grams, index_text
from hermes_holographic.language import name_key, named_entities, sentences
from hermes_holographic.slots import slots

MAX_ENTITIES = 16
"""Entities of one fact. Each more lowers what its vector says of the others; 16 stay at ten sigma."""

MAX_MEANINGS = 3
"""Names that a misspelt or shortened one may stand for. One that fits more of them names nobody."""

_MAX_SENTENCES = 8
_MAX_NAME_WORDS = 4
_MAX_WORDS = 200
_MAX_DENSE_NAME_CHARS = 10
_MAX_DENSE_CHARS = 400
_SHORTEST_SLIP = 4
_MAX_SLIP_CHARS = 40
_MAX_NEAR = 200


class Merged(NamedTuple):
    """Keys of two entities that became one."""

    into: str
    gone: str


class EntityIndex:
    """The tables entities, entity_names and fact_entities of one database. Names are compared by `name_key`."""

    def __init__(self, db: Database | sqlite3.Connection) -> None:
        self.db = db

    def resolve(self, names: Iterable[str]) -> dict[str, str]:
        """Return the entities with these names or aliases: name key to the entity's own key."""
        wanted = list(dict.fromkeys(filter(None, map(name_key, names))))
        found: dict[str, str] = {}
        for part in in_parts(wanted):
            sql = f"""SELECT n.key, e.key FROM entity_names n JOIN entities e USING (entity_id)
                WHERE n.key IN ({marks(part)})"""  # noqa: S608  # marks only
            found.update((row[0], row[1]) for row in self.db.execute(sql, part))
        return {key: found[key] for key in wanted if key in found}

    def meant(self, name: str) -> list[str] | None:
        """Return the keys of the entities that a name stands for.

        That is its own entity, else those one slip of a letter away, else those with this word in their
        name. Empty for an unknown name, None for a name that could be any of many.
        """
        asked = name_key(name)
        if own := self.resolve([asked]).get(asked):
            return [own]
        found: set[str] = set()
        for part in in_parts(sorted(slips(asked))):
            sql = f"SELECT key FROM name_slips WHERE slip IN ({marks(part)}) LIMIT {_MAX_NEAR}"  # noqa: S608  # marks only
            found.update(row[0] for row in self.db.execute(sql, part))
        near = [key for key in found if one_slip(asked, key)] or [
            key for key in found if asked in key.split()
        ]
        entities = sorted(set(self.resolve(near).values()))
        return entities if len(entities) <= MAX_MEANINGS else None

    def mentioned(self, text: str) -> list[str]:
        """Return the keys of known entities in a text, in any case, longest names first."""
        tokens = fold(text).replace("?", " ").replace(",", " ").split()[:_MAX_WORDS]
        spans = [
            " ".join(tokens[i : i + size])
            for size in range(_MAX_NAME_WORDS, 0, -1)
            for i in range(len(tokens) - size + 1)
        ]
        # Where no spaces are written, a name may begin and end anywhere.
        pieces = [
            run[i : i + size]
            for run in dense_runs(text[:_MAX_DENSE_CHARS])
            for size in range(_MAX_DENSE_NAME_CHARS, 1, -1)
            for i in range(len(run) - size + 1)
        ]
        return list(dict.fromkeys(self.resolve([*named_entities(text).names, *spans, *pieces]).values()))

    def about(
        self, *keys: str, most: int = -1, min_trust: float = 0.0, category: str | None = None
    ) -> list[int]:
        """Return up to `most` facts about all entities of these keys, newest first: the exact index, read backwards."""
        if not keys:
            return []
        ids = [
            self.db.execute("SELECT entity_id FROM entities WHERE key = ?", (key,)).fetchone() for key in keys
        ]
        if not all(ids):
            return []
        first, *others = sorted((row[0] for row in ids), key=self._size)
        also = " AND EXISTS (SELECT 1 FROM fact_entities o WHERE o.entity_id = ? AND o.fact_id = f.fact_id)"
        sql = f"""SELECT fact_id FROM fact_entities f JOIN facts USING (fact_id)
            WHERE entity_id = ?{also * len(others)} AND trust >= ? AND (? IS NULL OR category = ?)
            ORDER BY f.fact_id DESC LIMIT ?"""  # noqa: S608  # a constant, repeated
        return [row[0] for row in self.db.execute(sql, (first, *others, min_trust, category, category, most))]

    def neighbours(self, key: str, limit: int, most: int = -1) -> list[tuple[str, int]]:
        """Return entities that share facts with this one as (key, number of facts), from the `most` newest
        facts, most first.
        """
        sql = """SELECT other.key, count(*) AS shared FROM
            (SELECT fact_id, entity_id FROM fact_entities JOIN entities USING (entity_id) WHERE key = ?
                ORDER BY fact_id DESC LIMIT ?) mine
            JOIN fact_entities theirs ON theirs.fact_id = mine.fact_id AND theirs.entity_id != mine.entity_id
            JOIN entities other ON other.entity_id = theirs.entity_id
            GROUP BY other.key ORDER BY shared DESC, other.key LIMIT ?"""
        return [(row[0], row[1]) for row in self.db.execute(sql, (key, most, limit))]

    def names_of(self, fact_id: int, given: bool | None = None) -> list[str]:
        """Return the names of a fact's entities; optionally only the names that came with it, or only those
        read from its text.
        """
        sql = """SELECT name FROM fact_entities JOIN entities USING (entity_id)
            WHERE fact_id = ? AND (? IS NULL OR given = ?) ORDER BY entity_id"""
        return [row[0] for row in self.db.execute(sql, (fact_id, given, given))]

    def keys_of(self, fact_id: int) -> list[str]:
        """Return the keys of a fact's entities."""
        sql = "SELECT key FROM fact_entities JOIN entities USING (entity_id) WHERE fact_id = ? ORDER BY key"
        return [row[0] for row in self.db.execute(sql, (fact_id,))]

    def link(self, fact_id: int, names: Sequence[str], given: bool) -> None:
        """Store that a fact is about these entities, and add the new ones, while the fact has room for more."""
        for name in names[: max(0, MAX_ENTITIES - len(self.keys_of(fact_id)))]:
            if name_key(name):
                self.db.execute(
                    "INSERT INTO fact_entities VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                    (self._id(name), fact_id, given),
                )

    def unlink(self, fact_id: int) -> None:
        """Remove a fact's links, and the entities that no other fact names."""
        rows = self.db.execute("SELECT entity_id FROM fact_entities WHERE fact_id = ?", (fact_id,)).fetchall()
        self.db.execute("DELETE FROM fact_entities WHERE fact_id = ?", (fact_id,))
        for row in rows:
            if not self.db.execute("SELECT 1 FROM fact_entities WHERE entity_id = ?", tuple(row)).fetchone():
                self._forget_names(row[0])
                self.db.execute("DELETE FROM entities WHERE entity_id = ?", tuple(row))

    def merge(self, name: str, alias: str) -> Merged | None:
        """Make two names one entity, under the first; None if they are one already."""
        keep, drop = self._id(name), self._id(alias)
        if keep == drop:
            return None
        into, gone = (
            self.db.execute("SELECT key FROM entities WHERE entity_id = ?", (i,)).fetchone()[0]
            for i in (keep, drop)
        )
        self.db.execute("UPDATE OR IGNORE fact_entities SET entity_id = ? WHERE entity_id = ?", (keep, drop))
        self.db.execute("DELETE FROM fact_entities WHERE entity_id = ?", (drop,))
        self.db.execute("UPDATE entity_names SET entity_id = ? WHERE entity_id = ?", (keep, drop))
        self.db.execute("DELETE FROM entities WHERE entity_id = ?", (drop,))
        return Merged(into, gone)

    def _size(self, entity_id: int) -> int:
        """Return the number of an entity's facts, counted up to a thousand."""
        sql = "SELECT count(*) FROM (SELECT 1 FROM fact_entities WHERE entity_id = ? LIMIT 1000)"
        return int(self.db.execute(sql, (entity_id,)).fetchone()[0])

    def _id(self, name: str) -> int:
        key = name_key(name)
        row = self.db.execute("SELECT entity_id FROM entity_names WHERE key = ?", (key,)).fetchone()
        if row is not None:
            return int(row[0])
        sql = "INSERT INTO entities (key, name) VALUES (?, ?)"
        entity_id = int(self.db.execute(sql, (key, fold_space(name))).lastrowid or 0)
        self.db.execute("INSERT INTO entity_names VALUES (?, ?)", (key, entity_id))
        index_slips(self.db, key)
        return entity_id

    def _forget_names(self, entity_id: int) -> None:
        keys = self.db.execute("SELECT key FROM entity_names WHERE entity_id = ?", (entity_id,)).fetchall()
        for (key,) in keys:
            for slip in slips(key):
                self.db.execute("DELETE FROM name_slips WHERE slip = ? AND key = ?", (slip, key))
        self.db.execute("DELETE FROM entity_names WHERE entity_id = ?", (entity_id,))


def index_slips(db: Database | sqlite3.Connection, key: str) -> None:
    """Make a name findable by any one slip of a letter, and by each of its words."""
    for slip in slips(key):
        db.execute("INSERT OR IGNORE INTO name_slips VALUES (?, ?)", (slip, key))


def put_slots(db: Database | sqlite3.Connection, fact_id: int, content: str) -> None:
    """Keep what a fact states of whom, under the names that its subjects are known by."""
    found = [slot for sentence in sentences(content)[:_MAX_SENTENCES] for slot in slots(sentence)]
    own = EntityIndex(db).resolve(slot.subject for slot in found)
    for slot in found:
        db.execute(
            "INSERT OR IGNORE INTO fact_slots VALUES (?, ?, ?, ?)",
            (own.get(slot.subject, slot.subject), slot.attribute, slot.value, fact_id),
        )


def indexed(content: str) -> str:
    """Return a fact's text for the index of words: the words as they are cut, and the characters of its dense runs."""
    ones, pairs = grams(content)
    return " ".join([index_text(content), *map(gram_token, [*ones, *pairs])])


def gram_token(gram: str) -> str:
    """Return a gram as the index stores it. The index drops signs that are no letters, such as emoji and the
    vowels of Thai, so their numbers stand for them.

    >>> gram_token("部署"), gram_token("🎂")
    ('部署', 'u127874')
    """
    return "".join(sign if unicodedata.category(sign)[0] in "LN" else f"u{ord(sign)}" for sign in gram)


def slips(key: str) -> set[int]:
    """Return the hashes of a name with each of its letters left out, which it shares with names one letter away.

    Deleting one letter on both sides meets every insertion, omission, replacement and swap of neighbours, at a
    cost that does not grow with the number of names (symmetric deletion). Words of a longer name are met whole.
    """
    whole = key[:_MAX_SLIP_CHARS]
    shorter = (whole[:i] + whole[i + 1 :] for i in range(len(whole)))
    words = key.split() if " " in key else ()
    texts = [key, *words, *(shorter if len(key) >= _SHORTEST_SLIP else ())]
    return {zlib.crc32(text.encode()) for text in texts}


def one_slip(asked: str, key: str) -> bool:
    """Return whether two names are one letter apart: left out, added, replaced, or swapped with the next.

    A digit is no slip: "Apollo 11" and "Apollo 12" are two things.
    """
    if abs(len(asked) - len(key)) > 1 or min(len(asked), len(key)) < _SHORTEST_SLIP - 1:
        return False
    start = next(
        (i for i, (a, b) in enumerate(zip(asked, key, strict=False)) if a != b), min(len(asked), len(key))
    )
    left, right = asked[start:], key[start:]
    if not all(sign.isalpha() or sign in " -'" for sign in left[:1] + right[:1]):
        return False
    swapped = left[:2] == right[1::-1] and left[2:] == right[2:]
    return swapped or left[1:] == right or left == right[1:] or left[1:] == right[1:]


def marks(values: Sequence[object]) -> str:
    """Return question marks for so many parameters."""
    return ",".join("?" * len(values))


def in_parts(values: list[Any], size: int = 900) -> Iterator[list[Any]]:
    """Yield pieces below SQLite's oldest limit of 999 parameters."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
