"""What is asked: our session search, and what an agent does without one."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from recall_scores import DEPTHS, Ask, Conversation, Result
from rich.console import Console
from rich.progress import track

from hermes_core.recall import dense
from hermes_core.recall.tokens import is_stop_word, words
from hermes_core.sessions.db import SessionDB

System = Callable[[Conversation, Path], AbstractContextManager[Ask]]
"""A conversation and a folder of its own: what can then be asked of it."""


def run(
    name: str, system: System, conversations: Sequence[Conversation], console: Console, *, whole: bool = False
) -> Result:
    """All questions of all conversations, each conversation in a store of its own."""
    result = Result(name, whole)
    for conversation in track(conversations, description=f"{name}: storing and asking", console=console):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            with system(conversation, Path(folder)) as ask:
                result.ingest_seconds += time.perf_counter() - began
                result.messages += len(conversation.session_of())
                for question in conversation.questions:
                    asked = time.perf_counter()
                    refs = ask(question.text, max(DEPTHS))
                    result.latencies.append((time.perf_counter() - asked) * 1000)
                    result.answers.append((conversation, question, refs))
    return result


@contextmanager
def stored(conversation: Conversation, folder: Path, *, semantic: bool = False) -> Iterator[SessionDB]:
    """A SessionDB that holds the conversation."""
    db = SessionDB(folder / "state.db", semantic=semantic)
    for session in conversation.sessions:
        db.create_session(session.id, session.source, title=session.title, started_at=session.started_at)
        for number, turn in enumerate(session.turns, 1):
            messages = [
                {
                    "role": m.role,
                    "content": m.content,
                    "speaker": m.speaker,
                    "ref": m.ref,
                    "timestamp": m.timestamp,
                }
                for m in turn.messages
            ]
            db.append_turn(session.id, messages, f"{session.id}-{number}", number)
    if db.vectors is not None:
        db.vectors.build()
    yield db
    db.close()


@contextmanager
def ours(conversation: Conversation, folder: Path, *, semantic: bool = False) -> Iterator[Ask]:
    """SessionDB as it is installed by default."""
    with stored(conversation, folder, semantic=semantic) as db:
        yield lambda question, k: [hit.ref for hit in db.search(question, limit=k)]


@contextmanager
def ours_semantic(conversation: Conversation, folder: Path) -> Iterator[Ask]:
    """SessionDB with the extra [semantic]."""
    if not dense.installed():
        raise SystemExit("ours-semantic needs: pip install '.[semantic]'")
    with ours(conversation, folder, semantic=True) as ask:
        yield ask


@contextmanager
def nothing(_conversation: Conversation, _folder: Path) -> Iterator[Ask]:
    """An agent without memory."""
    yield lambda _question, _k: []


@contextmanager
def recent(conversation: Conversation, _folder: Path) -> Iterator[Ask]:
    """The last messages, whatever is asked."""
    refs = [m.ref for _, m in conversation.messages()][::-1]
    yield lambda _question, k: refs[:k]


@contextmanager
def whole(conversation: Conversation, _folder: Path) -> Iterator[Ask]:
    """All messages, whatever is asked: what a context without end would hold."""
    refs = [m.ref for _, m in conversation.messages()]
    yield lambda _question, _k: refs


@contextmanager
def grep(conversation: Conversation, _folder: Path) -> Iterator[Ask]:
    """The messages that hold most of the question's words as they are written, the newest first among equals."""
    texts = [(f"{m.speaker}: {m.content}".lower(), m.ref) for _, m in conversation.messages()]

    def ask(question: str, k: int) -> list[str]:
        asked = {word for word in words(question) if not is_stop_word(word)}
        counts = [(sum(word in text for word in asked), at, ref) for at, (text, ref) in enumerate(texts)]
        return [ref for count, _, ref in sorted(counts, reverse=True)[:k] if count]

    yield ask


def any_of(question: str) -> str:
    """The question's content words joined by OR, as FTS5 reads it."""
    return " OR ".join(f'"{word}"' for word in words(question) if not is_stop_word(word))


@contextmanager
def plain_fts5(conversation: Conversation, folder: Path) -> Iterator[Ask]:
    """FTS5 as most write it: porter, stop words out, terms joined by OR, bm25 over "Speaker: text"."""
    db = sqlite3.connect(folder / "plain.db")
    db.execute("CREATE VIRTUAL TABLE f USING fts5(text, ref UNINDEXED, tokenize='porter unicode61')")
    rows = ((f"{m.speaker}: {m.content}", m.ref) for _, m in conversation.messages())
    db.executemany("INSERT INTO f VALUES (?, ?)", rows)
    db.commit()

    def ask(question: str, k: int) -> list[str]:
        sql = "SELECT ref FROM f WHERE f MATCH ? ORDER BY rank LIMIT ?"
        return [row[0] for row in db.execute(sql, (any_of(question) or '""', k))]

    yield ask
    db.close()


WHOLE = "whole-conversation"

SYSTEMS: dict[str, System] = {
    "ours": ours,
    "ours-semantic": ours_semantic,
    "no-memory": nothing,
    "recent": recent,
    WHOLE: whole,
    "grep": grep,
    "plain-fts5": plain_fts5,
}


def default_systems() -> list[str]:
    return [name for name in SYSTEMS if name != "ours-semantic" or dense.installed()]
