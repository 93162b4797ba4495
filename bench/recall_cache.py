"""Stores and vectors that are kept between runs, so that a change of the ranking is measured in minutes."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

import hermes_core
from hermes_core.recall.tokens import STOP_WORDS
from hermes_memory_importers.values import ImportedSession
from hermes_memory_semantic import dense

# Modules that only read a store. A change of another module of search or storage makes the stores anew.
READING = {
    "rank.py",
    "query.py",
    "changes.py",
    "calendar_words.py",
    "dates.py",
    "candidates.py",
    "lookup.py",
    "snippets.py",
    "amounts.py",
}
STORING = ("recall", "sessions", "storage")


class Cache:
    """A folder of stores by the digest of their sessions, and of encodings by the digest of their texts.

    Programs may share it. Without a folder, it lasts for one run.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(tempfile.mkdtemp(prefix="recall-"))
        self._lasts = folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        self._code = _code()
        self._texts = sqlite3.connect(self._folder / "encodings.db", timeout=60)
        self._texts.execute("PRAGMA journal_mode = WAL")
        self._texts.execute("PRAGMA synchronous = OFF")
        self._texts.execute("CREATE TABLE IF NOT EXISTS encodings (key BLOB PRIMARY KEY, whole, words)")

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self._texts.close()
        if not self._lasts:
            shutil.rmtree(self._folder)

    def store(
        self, sessions: Sequence[ImportedSession], semantic: bool, make: Callable[[Path], None]
    ) -> Path:
        """Return the file of a store that holds the sessions; `make` writes it if there is none yet."""
        content = hashlib.sha256(repr([astuple(session) for session in sessions]).encode()).hexdigest()
        model = f"{dense.MODEL}" if semantic else "words"
        name = hashlib.sha256(f"{self._code} {model} {content}".encode()).hexdigest()[:32]
        path = self._folder / f"{name}.db"
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                draft = Path(folder, "state.db")
                with self.encodings():
                    make(draft)
                draft.replace(path)
        return path

    @contextmanager
    def encodings(self) -> Iterator[None]:
        """Let the encoder of this process read the encodings that are kept, and keep those that it makes.

        Their numbers have 16 bits. What is timed should run outside of this context.
        """
        encode = dense.Encoder.encode

        def encode_cached(
            encoder: dense.Encoder, texts: Sequence[str], without: Collection[str] = ()
        ) -> list[dense.Encoding]:
            if without:
                return encode(encoder, texts, without)
            keys = [_digest(text) for text in texts]
            encodings = {key: encoding for key in keys if (encoding := self._read(key)) is not None}
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in encodings}
            for key, encoding in zip(missing, encode(encoder, [*missing.values()]), strict=True):
                encodings[key] = encoding
                self._write(key, encoding)
            self._texts.commit()
            return [encodings[key] for key in keys]

        setattr(dense.Encoder, "encode", encode_cached)  # noqa: B010  # mypy takes no assignment to a method
        try:
            yield
        finally:
            setattr(dense.Encoder, "encode", encode)  # noqa: B010

    def _read(self, key: bytes) -> dense.Encoding | None:
        row = self._texts.execute("SELECT whole, words FROM encodings WHERE key = ?", (key,)).fetchone()
        return None if row is None else dense.Encoding(_vector(row[0])[0], _vector(row[1]))

    def _write(self, key: bytes, encoding: dense.Encoding) -> None:
        parts = (bytes(part.astype("float16")) for part in (encoding.whole, encoding.words))
        self._texts.execute("INSERT OR REPLACE INTO encodings VALUES (?, ?, ?)", (key, *parts))


def _vector(numbers: bytes) -> Any:
    import numpy

    return numpy.frombuffer(numbers, numpy.float16).astype(numpy.float32).reshape(-1, dense.DIMENSION)


def _digest(text: str) -> bytes:
    # After the comma the name says what a store holds of an encoding.
    model = f"{dense.MODEL.partition(',')[0]} {dense.MAX_TOKENS} {sorted(STOP_WORDS)}"
    return hashlib.sha256(f"{model} {text}".encode(errors="surrogatepass")).digest()


def _code() -> str:
    """Return a digest of the code that writes a store."""
    package = Path(hermes_core.__file__).parent
    files = sorted(file for name in STORING for file in (package / name).rglob("*.py"))
    digest = hashlib.sha256()
    for file in files:
        if file.name not in READING:
            digest.update(file.read_bytes())
    return digest.hexdigest()
