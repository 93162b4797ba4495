"""The search for what is left of a user after a deletion, in every file of the home and at the providers."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from hermes_core.config import backup_folder
from hermes_core.contract.values import Query, Session
from hermes_core.forget import Leftover
from hermes_core.memory import Memory
from hermes_core.sessions.schema import TABLES

MIN_FRAGMENT_CHARS, MAX_FRAGMENT_CHARS = 10, 200
"""Characters of a text that is searched for. A shorter one is what everybody says."""

MAX_QUESTIONS = 8
"""Texts by which a provider is asked for what it still recalls."""

MAX_SQL_FRAGMENTS = 50
"""Texts that are searched for in the tables of a server, each with a scan of every table."""

MAX_COMPARED = 200
"""Texts that were found and are searched for in what others said, each with a scan of all messages. Further ones count
as those of the user."""

CHUNK_BYTES = 1 << 22

UNPROMISED_FOLDERS = frozenset({"logs", "backups", "migration", "profiles"})
"""Folders of a home whose files belong to an operator: they are named, and not deleted."""

_UNPROMISED_NAME = re.compile(r"\.(damaged|lost-|moved-|bak\.|mine\.)|^chat_history$")
_ARCHIVE = re.compile(r"\.(zip|tar|tgz|tar\.\w+)$")

# Quotes, backslashes and controls are written in another way inside JSON, which most files hold.
_PLAIN_RUN = re.compile(r"[^\x00-\x1f\"'\\<>&\x7f]+")

Found = tuple[Counter[str], str]
"""Number of times that each text is in a place, and the reason why the place could not be searched; "" if it was."""

OTHERS = "what others wrote"

_WORD = re.compile(r"[a-z0-9]{3,}|[^\W\x00-\x7f]")


class Fragments:
    """Pieces of the texts of a user that can be recognized in any file.

    A piece with a word between two spaces is looked up by that word, so that thousands of them take one pass.

    Args:
        texts: The texts.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(dict.fromkeys(filter(None, map(_fragment, texts))))
        self._by_word: dict[bytes, list[tuple[bytes, str]]] = defaultdict(list)
        self._others: list[tuple[bytes, str]] = []
        for text in self.texts:
            for form in {text.encode("utf-8", "surrogatepass"), json.dumps(text)[1:-1].encode()}:
                inner = form.split(b" ")[1:-1]
                if word := max(inner, key=len, default=b""):
                    self._by_word[word].append((form, text))
                else:
                    self._others.append((form, text))

    def find(self, data: bytes) -> Counter[str]:
        """Return how often each text is in these bytes, without those that are not there."""
        words = self._by_word.keys() & set(data.split(b" "))
        pairs = [*self._others, *(pair for word in words for pair in self._by_word[word])]
        return Counter({text: count for form, text in pairs if (count := data.count(form))})

    def find_in(self, file: IO[bytes]) -> Counter[str]:
        """Return how often each text is in a file."""
        found: Counter[str] = Counter()
        overlap = max(
            (len(form) for pairs in (*self._by_word.values(), self._others) for form, _ in pairs), default=1
        )
        rest = b""
        while chunk := file.read(CHUNK_BYTES):
            data = rest + chunk
            found += self.find(data) - self.find(rest)
            rest = data[-overlap + 1 :] if overlap > 1 else b""
        return found


def texts_of(memory: Memory, user: str) -> list[str]:
    """Return the words of a user in all their sessions, and the entries of their notes."""
    sql = """SELECT m.content FROM messages m JOIN sessions s ON s.key = m.session_key
            WHERE s."user" = :user AND m.role = 'user'
        UNION ALL SELECT e.text FROM note_entries e JOIN notes n ON n.file = e.file WHERE n.owner = :user"""
    return [row[0] for row in memory.sessions.database.execute(sql, {"user": user})]


def look(memory: Memory, fragments: Fragments, speaker: Session, *, ask: bool = True) -> tuple[Leftover, ...]:
    """Search the files of the home, the tables of a server and the providers in use. Return what was found per place.

    Files in which nothing was found are one place for each entry of the home.

    Args:
        speaker: A session of the user, which is not stored.
        ask: False to ask no provider.
    """
    found = {**_files(memory, fragments), **_tables(memory, fragments)}
    promised_hits = {text for name, (counts, _) in found.items() if _is_promised(name) for text in counts}
    common = _held_by_others(memory, sorted(promised_hits)[:MAX_COMPARED])
    places: dict[str, Leftover] = {}
    for name, (counts, error) in found.items():
        promised = _is_promised(name)
        hits = sum(count for text, count in counts.items() if not (promised and text in common))
        place = name if hits or error or Path(name).is_absolute() else name.partition("/")[0]
        places.setdefault(place, Leftover(place, hits, promised, error))
    if common:
        places[OTHERS] = Leftover(OTHERS, len(common), False)
    names = [
        name
        for name in (memory.manager.erasures("") if ask else ())
        if any(memory.manager.implements(name, hook) for hook in ("export_memories", "prefetch"))
    ]
    at_providers = [_at_provider(memory, name, fragments, speaker) for name in names]
    return tuple(sorted([*places.values(), *at_providers], key=lambda one: (not one.hits, one.place)))


def _fragment(text: str) -> str:
    """Return the longest piece of a text that is written alike in all files; "" if it has none that tells."""
    longest = max((run.strip() for run in _PLAIN_RUN.findall(text)), key=len, default="")
    return longest[:MAX_FRAGMENT_CHARS].strip() if len(longest) >= MIN_FRAGMENT_CHARS else ""


def _is_promised(place: str) -> bool:
    """Return True if `forget` promises to delete what a file of the home holds of a user."""
    path = Path(place)
    if path.is_absolute() or path.parts[0] in UNPROMISED_FOLDERS or _ARCHIVE.search(path.name):
        return False
    return not any(_UNPROMISED_NAME.search(part) for part in path.parts)


def _files(memory: Memory, fragments: Fragments) -> dict[str, Found]:
    """Return what each file holds: of the home, of the folder of backups, and of what providers keep outside."""
    home = memory.home.path
    found: dict[str, Found] = {}
    outside = [backup_folder(memory.home, memory.config)]
    for name in memory.manager.erasures(""):
        outside += map(Path, memory.manager.ask(name, "backup_paths").value or ())
    for root in (home, *(path for path in outside if not path.is_relative_to(home))):
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and not path.is_symlink():
                place = path.relative_to(home).as_posix() if path.is_relative_to(home) else str(path)
                found[place] = _in_file(path, fragments)
    return found


def _in_file(path: Path, fragments: Fragments) -> Found:
    found: Counter[str] = Counter()
    error = ""
    try:
        with path.open("rb") as file:
            found += fragments.find_in(file)
        for member in _members(path) if _ARCHIVE.search(path.name) else ():
            found += fragments.find_in(member)
    except FileNotFoundError:  # a journal or a lock that was deleted meanwhile
        pass
    except (OSError, ValueError, zipfile.BadZipFile, tarfile.TarError, RuntimeError) as exc:
        error = f"it can't be searched: {exc}"
    return found, error


def _members(path: Path) -> Iterator[IO[bytes]]:
    """Yield the files in an archive."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    yield member
        return
    with tarfile.open(path) as archive:
        for info in archive:
            if file := archive.extractfile(info):
                yield file


def _tables(memory: Memory, fragments: Fragments) -> dict[str, Found]:
    """Return what the tables of a server hold, which are no file of the home."""
    database = memory.sessions.database
    if not database.shared:
        return {}
    found: dict[str, Found] = {}
    for table in TABLES:
        columns = [f'"{column.name}"' for column in table.columns if column.type == "text"]
        for text in fragments.texts[:: len(fragments.texts) // MAX_SQL_FRAGMENTS + 1] if columns else ():
            where = " OR ".join(f"{column} LIKE :text ESCAPE '!'" for column in columns)
            sql = f"SELECT count(*) FROM {table.name} WHERE {where}"  # noqa: S608  our own tables
            if count := database.execute(sql, {"text": _pattern(text)}).fetchone()[0]:
                found.setdefault(f"table {table.name}", (Counter(), ""))[0][text] += count
    return found


def _held_by_others(memory: Memory, texts: Iterable[str]) -> set[str]:
    """Return the texts that stand in messages and notes after the deletion, which are those of other people."""
    sql = """SELECT 1 FROM messages WHERE content LIKE :text ESCAPE '!'
        UNION ALL SELECT 1 FROM note_entries WHERE text LIKE :text ESCAPE '!' LIMIT 1"""
    execute = memory.sessions.database.execute
    return {text for text in texts if execute(sql, {"text": _pattern(text)}).fetchone() is not None}


def _pattern(text: str) -> str:
    return f"%{re.sub('[!%_]', lambda match: '!' + match[0], text)}%"


def _at_provider(memory: Memory, name: str, fragments: Fragments, speaker: Session) -> Leftover:
    """Return how many memories a provider still tells that come from the user.

    It is asked with the first half of a text, and tells the text if it knows the other half.
    """
    place, hits, cursor = f"provider {name}", 0, ""
    said = [_words(text) for text in fragments.texts]
    exports = memory.manager.implements(name, "export_memories")
    while exports:
        page = memory.manager.ask(name, "export_memories", cursor=cursor, session=speaker)
        if not page.ok:
            return Leftover(place, 0, True, page.error or page.status)
        hits += sum(_tells(record.text, said) for record in page.value.records)
        cursor = page.value.cursor
        exports = bool(cursor)
    for number in range(0, len(said), len(said) // MAX_QUESTIONS + 1):
        text = fragments.texts[number]
        half = text[: len(text) // 2].rpartition(" ")[0] or text[: len(text) // 2]
        recall = memory.manager.ask(name, "prefetch", query=Query(half), session=speaker)
        if not recall.ok and recall.status != "skipped":
            return Leftover(place, 0, True, recall.error or recall.status)
        if recall.ok:
            told = [item.text for item in recall.value.items] or [recall.value.text]
            asked = [words - _words(half) for words in said]
            hits += sum(_tells(one, asked) for one in told)
    return Leftover(place, hits, True)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _tells(memory: str, said: Sequence[set[str]]) -> bool:
    """Return True if a memory has more than half of the words of one of the texts."""
    words = _words(memory)
    return any(2 * len(own & words) > len(own) for own in said)
