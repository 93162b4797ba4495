"""Verdicts of a person on texts: what the threat scan flags and the person allows, and which folders they trust.

The file `verdicts.json` of a home holds hashes of exact texts. A text that changes by one letter is another text, and the
scan decides on it again. Only the command line writes verdicts, so a model can't.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.storage.files import FileValue, locked, write_atomic
from hermes_core.storage.inventory import LAST_TIME

if TYPE_CHECKING:
    from hermes_core.safety.scan import Threat

log = logging.getLogger(__name__)


# Files whose finding is remembered, and notices that were shown; the oldest go.
MAX_REMEMBERED = 2000

# Characters of a file in the prompt; every request sends them.
MAX_FILE_CHARS = 20_000

# Characters of a text whose scan is remembered by the process: notes are shorter by default.
MAX_CACHED_CHARS = 4096

CONTEXT_FILES = ("AGENTS.md", "CLAUDE.md")
"""Files of a working folder that a system prompt may hold, the first before the second."""

_SUBJECT_CHARS = 120


class Verdict(Struct, frozen=True, forbid_unknown_fields=True):
    """Decision of a person on one exact text.

    Attributes:
        hash: SHA-256 of the text.
        kind: What the text is: "text" (a note), "file", "folder" (the AGENTS.md of a folder), or the noun of a part of the
            home, such as "skill".
        subject: Path or name, or the beginning of a note.
        allowed: False for a folder whose file the person does not want in the prompt.
        at: Time of the decision in epoch seconds.
    """

    hash: str
    kind: str
    subject: str
    allowed: bool = True
    at: Annotated[float, Meta(ge=0, lt=LAST_TIME)] = 0.0

    @property
    def id(self) -> str:
        """Short name of the verdict, for commands."""
        return self.hash[:12]


class _Findings(Struct):
    """Findings of the scan in texts by their hash, with the rules of `rules`."""

    rules: int = 0
    texts: dict[str, str] = {}


class _File(Struct):
    """The content of the file: verdicts, findings, and the hashes of notices that were shown."""

    verdicts: list[Verdict] = []
    findings: _Findings = msgspec.field(default_factory=_Findings)
    shown: list[str] = []


class ScannedText(Struct, frozen=True):
    """Text of a file as a model may get it, and a sentence for the person on each finding."""

    text: str
    notices: tuple[str, ...] = ()


class Verdicts:
    """The file `verdicts.json` of a home. Several processes may use it.

    A file that can't be read allows nothing, and `fault` says so.
    """

    def __init__(self, home: HermesHome, clock: Callable[[], float] = time.time) -> None:
        self._path = home.verdicts_json
        self._clock = clock
        self._file = FileValue[tuple[_File, StorageError | None]]()
        self._findings: dict[str, str] = {}  # by hash; not in the file yet

    @property
    def fault(self) -> StorageError | None:
        """Error that says why the file can't be used; None if it can."""
        return self._content()[1]

    def scan(self, text: str, *, untrusted: bool = False) -> Threat | None:
        """Return the first threat in a note, or None; also None if a person allowed the exact text.

        Args:
            untrusted: True to try the rules for notes of low origin too.
        """
        short = len(text) <= MAX_CACHED_CHARS
        find = _threat_of_note if short else _threat_of_note.__wrapped__
        threat = find(text, untrusted)
        return None if threat is None or self.allows(text) else threat

    def allows(self, text: str) -> bool:
        """Return True if a person allowed the exact text."""
        return any(
            verdict.allowed and verdict.hash == hash_of(text) and verdict.kind != "folder"
            for verdict in self.entries()
        )

    def allow(self, text: str, kind: str = "text", subject: str = "", *, allowed: bool = True) -> Verdict:
        """Store a verdict of the person on the exact text, and return it. It replaces an older one on that text."""
        shown = subject or " ".join(text.split())[:_SUBJECT_CHARS]
        digest = _folder_hash(subject, text) if kind == "folder" else hash_of(text)
        verdict = Verdict(digest, kind, shown, allowed, self._clock())

        def add(data: _File) -> None:
            data.verdicts = [*(entry for entry in data.verdicts if entry.hash != verdict.hash), verdict]

        self._change(add)
        return verdict

    def remove(self, verdict_id: str) -> Verdict | None:
        """Remove the verdict whose id or hash begins so, and return it; None if none or several do."""
        matches = [
            verdict for verdict in self.entries() if verdict_id and verdict.hash.startswith(verdict_id)
        ]
        if len(matches) != 1:
            return None

        def drop(data: _File) -> None:
            data.verdicts = [entry for entry in data.verdicts if entry.hash != matches[0].hash]

        self._change(drop)
        return matches[0]

    def entries(self) -> list[Verdict]:
        """Return all verdicts, the oldest first."""
        return self._read().verdicts

    def trusts_folder(self, folder: Path, text: str) -> bool | None:
        """Return the person's decision on this text in this folder; None if they were not asked."""
        digest = _folder_hash(str(folder), text)
        return next((verdict.allowed for verdict in self.entries() if verdict.hash == digest), None)

    def review(self, text: str, name: str, command: str, *, save: bool = True) -> ScannedText:
        """Return the text of a file that a person put there, as a model may get it.

        A finding of the scan is a notice, and the text stays. Invisible text, forged roles and forged fences are
        neutralised, with a notice. A text that the person allowed is returned as it is.

        Args:
            text: Text of the file.
            name: Name of the file in notices.
            command: Command with which a person allows the text.
            save: False if the caller reviews many texts and calls `save` after them.
        """
        if self.allows(text):
            return ScannedText(text)
        from hermes_core.safety.neutral import neutralize

        neutral, changes = neutralize(text)
        notices = [f"{name}, {change}" for change in changes]
        if finding := self._finding(neutral):
            notices.append(f"{name} may give the model orders, and is used as it is: {finding}")
        if save:
            self.save()
        return ScannedText(neutral, tuple(f"{notice}; if it is right: {command}" for notice in notices))

    def save(self) -> None:
        """Store the findings of the reviews, so that no later process scans these texts again."""
        if not self._findings:
            return
        rules, new = _rules_digest(), self._findings

        def add(data: _File) -> None:
            texts = data.findings.texts if data.findings.rules == rules else {}
            data.findings = _Findings(rules, dict([*texts.items(), *new.items()][-MAX_REMEMBERED:]))

        self._remember(add)
        self._findings = {}

    def first_shows(self, notices: Sequence[str]) -> list[str]:
        """Return the notices that were not shown in this home yet, and remember that they are shown now."""
        shown = self._read().shown
        new = [notice for notice in notices if hash_of(notice) not in shown]

        def add(data: _File) -> None:
            data.shown = [*data.shown, *map(hash_of, new)][-MAX_REMEMBERED:]

        if new:
            self._remember(add)
        return new

    # ------------------------------------------------------------------ private

    def _finding(self, text: str) -> str:
        """Return what the scan finds in a text, with its line; "" for nothing. The scan of a known text is skipped."""
        digest = hash_of(text)
        known = self._read().findings
        if known.rules == _rules_digest() and digest in known.texts:
            return known.texts[digest]
        if digest not in self._findings:
            self._findings[digest] = _first_finding(text)
        return self._findings[digest]

    def _remember(self, change: Callable[[_File], None]) -> None:
        """Store what only saves time or repetition; a home that can't be written does without."""
        try:
            self._change(change)
        except StorageError as exc:
            log.debug("findings and notices are not remembered: %s", exc)

    def _change(self, change: Callable[[_File], None]) -> None:
        with locked(self._path):
            data = _load(self._path)
            change(data)
            write_atomic(self._path, msgspec.json.format(msgspec.json.encode(data), indent=1))
        self._file.forget()

    def _read(self) -> _File:
        return self._content()[0]

    def _content(self) -> tuple[_File, StorageError | None]:
        """Return what the file holds, and why it can't be used."""

        def load() -> tuple[_File, StorageError | None]:
            try:
                return _load(self._path), None
            except StorageError as exc:
                log.warning("%s", exc)
                return _File(), exc

        return self._file.get(self._path, load)


def find_context_file(folder: Path | None) -> Path | None:
    """Return the path of AGENTS.md, or else of CLAUDE.md, in `folder`; None if neither can be read as a file."""
    names = CONTEXT_FILES if folder is not None else ()
    return next((folder / name for name in names if folder and (folder / name).is_file()), None)


def read_for_prompt(path: Path) -> str:
    """Return the first `MAX_FILE_CHARS` characters of a file, and one more if there are more. Raises `OSError`."""
    if path.exists() and not path.is_file():  # a pipe would block, and a device has no end
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.read(MAX_FILE_CHARS + 1)


def hash_of(text: str) -> str:
    """Return the SHA-256 of a text; line ends and white space around it do not count.

    >>> hash_of("Likes tea.\\r\\n") == hash_of("Likes tea.")
    True
    """
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").strip()
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


def _folder_hash(folder: str, text: str) -> str:
    return hash_of(f"{folder}\n{hash_of(text)}")


def _first_finding(text: str) -> str:
    from hermes_core.safety.scan import first_threat

    threat = first_threat(text)
    if threat is None:
        return ""
    lines = enumerate(text.split("\n"), 1)
    line = next((f" in line {at}" for at, line in lines if first_threat(line)), "")
    return f"{threat.message}{line}"


@cache
def _rules_digest() -> int:
    from hermes_core.safety.threat_rules import RULES
    from hermes_core.safety.threat_words import WORDS

    return zlib.crc32(repr((RULES, WORDS)).encode())


def _load(path: Path) -> _File:
    """Return the content of the file, that of an empty one if there is none. Raises `StorageError`."""
    try:
        if path.exists() and not path.is_file():  # a pipe would block
            raise OSError(errno.EINVAL, "it is not a regular file")
        return msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return _File()
    except (OSError, msgspec.DecodeError, RecursionError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
        raise StorageError(
            f"{str(path)!r} can't be read as a file of verdicts ({reason}), so nothing in it counts",
            "put a backup in its place, mend it, or move it away and allow its texts again",
        ) from exc


@lru_cache(maxsize=2048)
def _threat_of_note(text: str, untrusted: bool) -> Threat | None:
    """Return `first_threat`. Each session scans all notes and their neighbours, which rarely change."""
    from hermes_core.safety.scan import (
        first_threat,  # here, since its 133 rules take 20 ms, and a new home has no note
    )

    return first_threat(text, untrusted=untrusted)
