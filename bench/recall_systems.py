"""What is asked: our session search, and what an agent does without one."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from recall_cache import Cache
from recall_scores import DEPTHS, Ask, Conversation, Result
from rich.console import Console
from rich.progress import track

from hermes_core.recall.tokens import is_stop_word, words
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_eval.baseline import PlainFts5, bigrams
from hermes_memory_importers.values import ImportedMessage, ImportedSession
from hermes_memory_semantic import dense
from hermes_memory_semantic.vectors import VectorIndex

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
                    asked, used = time.perf_counter(), time.process_time()
                    refs = ask(question.text, max(DEPTHS))
                    result.cpu.append((time.process_time() - used) * 1000)
                    result.latencies.append((time.perf_counter() - asked) * 1000)
                    result.answers.append((conversation, question, refs))
    return result


@contextmanager
def stored(
    conversation: Conversation,
    folder: Path,
    *,
    semantic: bool = False,
    cache: Cache | None = None,
    storage: str = "",
) -> Iterator[SessionStore]:
    """A SessionStore that holds the conversation, in `folder`. With a cache, the file is a copy of a cached file.

    With `storage`, the address of a PostgreSQL server, it is a schema there.
    """
    if storage:
        with on_server(storage) as open_store:
            # Without vectors first: a thread that makes them in the background would not know the cache.
            with closing(open_store()) as db:
                _add(db, conversation.sessions)
            with closing(open_store(make_vectors=VectorIndex if semantic else None)) as db:
                if db.past.vectors is not None:
                    with cache.encodings() if cache else nullcontext():
                        db.past.vectors.build()
                yield db
        return
    path = folder / "state.db"
    if cache is not None:
        copy_store(conversation, path, semantic, cache)
    with closing(SessionStore(path, make_vectors=VectorIndex if semantic else None)) as db:
        if cache is None:
            _add(db, conversation.sessions)
            if db.past.vectors is not None:
                db.past.vectors.build()
        yield db


@contextmanager
def on_server(url: str) -> Iterator[Callable[..., SessionStore]]:
    """Open a store in a schema of its own on a PostgreSQL server, as often as asked."""
    from hermes_memory_postgresql.engine import PostgresEngine

    schema = f"recall_{uuid.uuid4().hex}"
    yield lambda **options: SessionStore(PostgresEngine(url, schema=schema), **options)
    with closing(PostgresEngine(url, schema=schema)) as database:
        database.execute(f"DROP SCHEMA {schema} CASCADE")


def copy_store(conversation: Conversation, path: Path, semantic: bool, cache: Cache) -> None:
    """Write a store that holds the conversation. The sessions that it shares with others are stored once."""
    count = conversation.shared or len(conversation.sessions)

    def make(path: Path) -> None:
        # Without vectors first: a thread that makes them in the background would not know the cache.
        with closing(SessionStore(path)) as db:
            _add(db, conversation.sessions[:count])
        _build(path, semantic)

    shutil.copyfile(cache.store(conversation.sessions[:count], semantic, make), path)
    if own := conversation.sessions[count:]:
        with closing(SessionStore(path)) as db:
            _add(db, own)
        with cache.encodings():
            _build(path, semantic)


def _add(db: SessionStore, sessions: Sequence[ImportedSession]) -> None:
    for session in sessions:
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


def _build(path: Path, semantic: bool) -> None:
    if semantic:
        with closing(SessionStore(path, make_vectors=VectorIndex)) as db:
            if db.past.vectors is not None:
                db.past.vectors.build()


@contextmanager
def ours(
    conversation: Conversation,
    folder: Path,
    *,
    semantic: bool = False,
    cache: Cache | None = None,
    storage: str = "",
) -> Iterator[Ask]:
    """SessionStore as it is installed by default."""
    with stored(conversation, folder, semantic=semantic, cache=cache, storage=storage) as db:
        yield lambda question, k: [hit.ref for hit in db.past.search(question, limit=k)]


@contextmanager
def ours_semantic(
    conversation: Conversation, folder: Path, *, cache: Cache | None = None, storage: str = ""
) -> Iterator[Ask]:
    """SessionStore with the package hermes-memory-semantic."""
    if not dense.installed():
        raise SystemExit("ours-semantic needs: pip install plugins/semantic")
    with ours(conversation, folder, semantic=True, cache=cache, storage=storage) as ask:
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


@contextmanager
def plain_fts5(
    conversation: Conversation, folder: Path, *, cut: Callable[[str], str] = str, **_: object
) -> Iterator[Ask]:
    """FTS5 as most write it: porter, stop words out, terms joined by OR, bm25 over "Speaker: text"."""
    with closing(PlainFts5(folder / "plain.db", cut)) as baseline:
        baseline.add((line_of(m), m.ref) for _, m in conversation.messages())
        yield baseline.ask


@contextmanager
def minilm_cosine(conversation: Conversation, _folder: Path, *, cache: Cache | None = None) -> Iterator[Ask]:
    """The cosine of the whole text, without any words: what a vector store does with all-MiniLM-L6-v2."""
    import numpy

    if not dense.installed():
        raise SystemExit("minilm-cosine needs: pip install plugins/semantic")
    messages = [m for _, m in conversation.messages()]
    refs = [m.ref for m in messages]
    encoder = dense.encoder()
    with cache.encodings() if cache else nullcontext():
        # In small parts, since an encoding holds the vectors of all words as well.
        matrix = numpy.array(
            [
                encoding.whole
                for start in range(0, len(messages), dense.BATCH)
                for encoding in encoder.encode([line_of(m) for m in messages[start : start + dense.BATCH]])
            ]
        )

    def ask(question: str, k: int) -> list[str]:
        (asked,) = encoder.encode([question])
        near = matrix @ asked.whole
        return [refs[at] for at in numpy.argsort(-near, kind="stable")[:k]]

    yield ask


def line_of(message: ImportedMessage) -> str:
    """Return a message with its speaker, as the baselines read it."""
    return f"{message.speaker or message.role}: {message.content}"


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

# The systems that a panel compares; each may take a cache.
PANEL_SYSTEMS: dict[str, Callable[..., AbstractContextManager[Ask]]] = {
    "ours": ours,
    "ours-semantic": ours_semantic,
    "plain-fts5": plain_fts5,
    "fts5-bigrams": partial(plain_fts5, cut=bigrams),
    "minilm-cosine": minilm_cosine,
}


def with_storage(systems: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Return the systems, of which ours store on a PostgreSQL server if there is a `url`."""
    of_ours = {name: partial(systems[name], storage=url) for name in ("ours", "ours-semantic") if url}
    return {**systems, **of_ours}


def default_systems() -> list[str]:
    return [name for name in SYSTEMS if name != "ours-semantic" or dense.installed()]
