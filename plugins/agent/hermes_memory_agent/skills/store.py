"""Store of a home's skills: find, show and change them, with scan, lock, journal and undo.

`skills/CATEGORY/NAME/SKILL.md` are the agent's own, in the home or in the folder of a user. Skills of further folders are read and never written.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import shlex
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_core import HermesHome, sanitize_context
from hermes_core.config import Config
from hermes_core.contract.values import Origin, Session
from hermes_core.curated.origins import UNKNOWN, NoteOrigins, entry_hash
from hermes_core.errors import SkillError, StorageError
from hermes_core.home import expanded
from hermes_core.kit import Database, Migration, clip, storable, write_atomic
from hermes_core.safety.neutral import neutralize
from hermes_core.safety.origin import RANKS, Reading, in_scope, lowest, may_command, origin_of_text
from hermes_core.safety.scan import Scan, first_threat
from hermes_core.safety.templates import without_turns
from hermes_core.storage.chain import ChainReport, EventChain, text_digest
from hermes_core.storage.files import PRIVATE_FILE, locked, open_at_once, remedy_for, write_checked
from hermes_core.storage.inventory import ORIGINS
from hermes_core.storage.sqlite import SCHEMA_1
from hermes_core.storage.verdicts import ScannedText, Verdicts
from hermes_memory_agent.skills.document import (
    MAX_SKILL_CHARS,
    OPERATING_SYSTEMS,
    SkillDocument,
    check_name,
    normalize_lines,
    parse_skill,
    read_skill,
)

FILE = "SKILL.md"

JOURNAL = ".journal.db"
"""File in a folder of skills with every change that the agent made to one, for history and undo."""

PARTIAL = ".partial"
"""Suffix of a folder that is still being written."""

MAX_LISTED = 200
"""Skills in the index of the prompt; `skill_view` without a name lists all."""

_INDEX_DESCRIPTION_CHARS = 120

PROSE_SUFFIXES = ("", ".md", ".markdown", ".txt", ".rst")
"""Suffixes of files whose text a model may follow like a SKILL.md, so that they are scanned."""

_CATEGORY = re.compile(r"[\w.-]{1,40}(?:/[\w.-]{1,40})*")

MAX_DEPTH = 6
"""Nested folders that are searched, also behind a link."""

MAX_FILE_BYTES = 4 * MAX_SKILL_CHARS
"""Bytes that are read of a file. The rest of a longer file is not shown, and the file can't be changed here."""


@dataclass(frozen=True, slots=True)
class Skill:
    """Skill that can be used here.

    Attributes:
        own: True if it lies in the home and may be changed.
        origin: Who or what its text comes from.
        waits: True if it is in no index until a person confirms it, because of its origin.
    """

    category: str
    document: SkillDocument
    folder: Path
    own: bool
    origin: Origin = "file"
    waits: bool = False

    @property
    def name(self) -> str:
        """Name of the skill, unique in the list."""
        return self.document.name

    def has_name(self, name: str) -> bool:
        """Return True if `name` is its name or `category/name`."""
        return name in (self.name, f"{self.category}/{self.name}")


class SkillStore:
    """Store of the skills under `root`, and of those in `external` folders, which are only read.

    Args:
        external: Folders; a relative path starts at the home, beside `root`.
        scan: Threat scan of what the agent writes.
        verdicts: Verdicts of the person on the files that they put here; None for none.
        platform: linux, macos or windows; the default is this system.
        owner: `Session.owner` of the user whose skills these are.
        always_indexed: Low origins whose skills are in the index without a confirmation.
    """

    def __init__(
        self,
        root: Path,
        external: Iterable[str | Path] = (),
        *,
        scan: Scan = first_threat,
        verdicts: Verdicts | None = None,
        platform: str | None = None,
        owner: str = "",
        always_indexed: Collection[str] = (),
    ) -> None:
        self._root = root
        self.owner = owner
        self.origins = NoteOrigins(root / f".{ORIGINS}")
        self._always_indexed = frozenset(always_indexed)
        self._external = tuple(root.parent / expanded(folder) for folder in external)
        self._scan = scan
        self._verdicts = verdicts or Verdicts(HermesHome(root.parent))
        self._platform = platform or OPERATING_SYSTEMS.get(sys.platform, sys.platform)
        self._journal = SkillJournal(root / JOURNAL)

    def skills(self) -> list[Skill]:
        """Return the skills for this platform, by category and name. An own skill hides an external one of its name."""
        return self._read()[0]

    def problems(self) -> list[str]:
        """Return a sentence for each skill and folder that can't be used."""
        own = [self._root] if os.path.lexists(self._root) else []  # a broken link or a file counts as present
        missing = [
            f"{folder}: no folder of skills is there"
            for folder in (*own, *self._external)
            if not os.path.isdir(folder)  # noqa: PTH112  `is_dir` raises where a folder above is closed
        ]
        return missing + [f"{path}: {reason}" for path, reason in self._read()[2]]

    def index(self) -> str:
        """Return the list of skills for the system prompt, or ""."""
        listed = [skill for skill in self.skills() if not skill.waits]
        lines = [index_line(skill) for skill in listed]
        if len(lines) > MAX_LISTED:
            more = len(lines) - MAX_LISTED
            lines = [*lines[:MAX_LISTED], f"({more} more: skill_view without a name lists all)"]
        return "\n".join(lines)

    def get(self, name: str) -> Skill:
        """Return the skill of this name or `category/name`. Raises `SkillError` that lists the known names."""
        wanted = name.strip().strip("/")
        usable, hidden, unusable = self._read()
        for skill in usable:
            if skill.has_name(wanted):
                return skill
        for skill in hidden:
            if skill.has_name(wanted):
                here = f"it is hidden on {self._platform}"
                raise SkillError(f"skill {wanted!r} is for {', '.join(skill.document.platforms)}", here)
        for path, reason in unusable:
            if path.parent.as_posix().endswith(f"/{wanted}"):
                # The reason may quote the file, whose text may be an attack on the model that reads this error.
                why = reason if first_threat(reason) is None else "`hermes-memory skills list` says why"
                raise SkillError(f"skill {wanted!r} can't be used: {why}", "tell the person, who can mend it")
        # A name may be a sentence: those of skills that wait are in no text for a model.
        known = ", ".join(skill.name for skill in usable[:MAX_LISTED] if not skill.waits) or "none"
        raise SkillError(f"there is no skill {name!r}", f"known skills: {known}")

    def view(self, name: str, file: str = "") -> str:
        """Return the whole text of a skill, or of a file beside it. Raises `SkillError`."""
        return self._view(self.get(name), file)

    def view_safely(self, name: str, file: str = "") -> str:
        """Return the text for a model. Raises `SkillError` if there is no such skill or file.

        A person put the file there, so it is shown although the scan may find something; `notices` says what. Invisible
        text, forged roles and forged fences are neutralised, but not in scripts, which a model may copy.
        """
        skill = self.get(name)
        text, folder = self._view(skill, file), skill.folder
        itself = not file or (folder / file).samefile(folder / FILE)  # by another name, or a link
        if itself or Path(file).suffix.lower() in PROSE_SUFFIXES:
            # What the agent wrote after it read something of low origin is no file of the person.
            threat = self._scan(text) if skill.waits else None
            if threat is not None:
                raise SkillError(
                    f"skill {name!r} is kept from you: {threat.message}",
                    "tell the person, who can read and allow it",
                )
            return self._review(skill, text).text
        return without_turns(sanitize_context(text))

    def notices(self) -> list[str]:
        """Return a sentence for each skill in which the scan finds something, with the line and what to do."""
        sentences: list[str] = []
        for skill in self.skills():
            with contextlib.suppress(SkillError):  # `problems` says it
                sentences += self._review(skill, self._view(skill, ""), save=False).notices
        self._verdicts.save()
        return sentences

    def new_notices(self) -> list[str]:
        """Return the notices that were not shown in this home yet."""
        return self._verdicts.first_shows(self.notices())

    def _review(self, skill: Skill, text: str, *, save: bool = True) -> ScannedText:
        command = f"hermes-memory memory allow --skill {shlex.quote(skill.name)}"
        return self._verdicts.review(text, f"skill {skill.name!r}", command, save=save)

    # ------------------------------------------------------------------ changes

    def waiting(self) -> list[Skill]:
        """Return the skills that are in no index until a person confirms them."""
        return [skill for skill in self.skills() if skill.waits]

    def confirm(self, name: str, shown: str | None = None) -> None:
        """Store that a person read the text of a skill and lets it stand in the index.

        No tool of a model may call this.

        Args:
            shown: The text that the person read; default: the present text.

        Raises:
            SkillError: The present text is another one.
        """
        text = self._view(self.get(name), "")
        if shown is not None and text != shown:
            raise SkillError(
                f"skill {name!r} was changed since it was shown", "run hermes-memory review again"
            )
        self._journal.record("confirm", entry_hash(text))  # first: no confirmation is without an event
        self.origins.confirm([text])

    def rebuild_origins(self) -> int:
        """Replace an unusable file of origins. Return the number of skills, all of which wait now."""
        texts = [self._view(skill, "") for skill in self.skills() if skill.own]
        earlier = [
            text for change in self.history(MAX_CHANGES) for text in (change.before, change.after) if text
        ]
        self.origins.rebuild([*texts, *map(normalize_lines, earlier)])
        return len(texts)

    def origin_of(self, session: Session, content: str, reading: Reading | None, name: str = "") -> Origin:
        """Return the origin of a skill's new text.

        Args:
            session: The session that writes.
            content: The text that is written.
            reading: What the model has read; None if a person writes.
            name: The skill that is changed; "" for a new one.
        """
        if session.owner != self.owner:  # skills that several users share
            return lowest(["user", *([reading.origin] if reading else [])])
        if reading is None:
            return "owner" if session.is_owner else "person"
        inside = Reading(in_scope(reading.origin, self.owner), reading.said)
        if not name:
            return origin_of_text(content, inside)
        # The rest of the skill stays, so that its origin stays too, whatever the new part says.
        return lowest([origin_of_text(content, inside), self.get(name).origin])

    def create(
        self, name: str, category: str, content: str, session_id: str = "", origin: Origin = "person"
    ) -> int:
        """Write a new skill and return the id of the change. Raises `SkillError` if it exists or is not acceptable."""
        check_name(category, "category")
        path = f"{category}/{check_name(name)}/{FILE}"
        return self._change(
            path, "create", lambda before: self._new(before, name, content), session_id, origin
        )

    def import_skill_files(
        self, path: str, content: str, files: Mapping[str, bytes], origin: Origin, *, scanned: bool
    ) -> int:
        """Write a skill of another home at CATEGORY/NAME, all of it or nothing, and return the id of the change.

        Args:
            content: Text of SKILL.md.
            files: The files beside SKILL.md, by relative path.
            scanned: True to check all texts and names as those that the agent writes. A person's own skill is not
                refused for them, as if they put it there.

        Raises:
            SkillError: It can't be used, is there already, is refused, or would change or extend another skill.
        """
        *categories, name = path.split("/")

        def new(before: str | None) -> str:
            if before is not None:
                raise SkillError(f"skill {name!r} exists already", "delete it first")
            text = content
            if scanned:
                text = self._accepted(content, check_name(name), read_skill)
                for category in categories or [""]:
                    check_name(category, "category")
                self._check_texts(files)
            else:
                read_skill(normalize_lines(content), name)
            _check_free_place(self._root, path, files)
            # The files beside it first: a skill that is listed is whole.
            for file, data in files.items():
                write_atomic(self._root / path / file, data, PRIVATE_FILE)
            return text

        return self._change(f"{path}/{FILE}", "import", new, "import", origin)

    def patch(
        self, name: str, old_text: str, new_text: str, session_id: str = "", origin: Origin = "person"
    ) -> int:
        """Replace the one occurrence of `old_text` in a skill, and return the id of the change."""
        skill = self._own(name)
        return self._change(
            self._path(skill),
            "patch",
            lambda before: self._patched(before, skill.name, old_text, new_text),
            session_id,
            origin,
        )

    def delete(self, name: str, session_id: str = "") -> int:
        """Delete a SKILL.md; files beside it stay. Returns the id of the change, which can be undone."""
        return self._change(self._path(self._own(name)), "delete", lambda _: None, session_id)

    def undo(self, change: int | None = None, session_id: str = "") -> SkillChange:
        """Undo the change of this id, or the last change that was not undone.

        Raises `SkillError` if the skill was changed since.
        """
        self._settle()
        target = self._journal.last_standing() if change is None else self._journal.find(change)
        if target is None:
            what = (
                "there is nothing to undo" if change is None else f"there is no change {change!r} of skills"
            )
            raise SkillError(what, "hermes-memory skills history lists the changes")
        self._change(target.path, "undo", lambda now: _restored(target, now), session_id)
        return target

    def restore(self, change: int, session_id: str = "") -> SkillChange:
        """Bring back a skill as it was right after the change of this id. Raises `SkillError` if there is no such change."""
        self._settle()
        version = self._journal.find(change)
        if version is None:
            raise SkillError(
                f"there is no change {change!r} of skills", "hermes-memory skills history lists the changes"
            )
        self._change(version.path, "restore", lambda _: version.after, session_id)
        return version

    def verify(self) -> ChainReport | None:
        """Check the record of all changes; None if no skill was changed yet. Raises `StorageError`."""
        return self._journal.verify() if (self._root / JOURNAL).exists() else None

    def accept_history(self) -> None:
        """Record that a person accepts the history as it is, after `verify` had reported faults."""
        self._journal.accept()

    def history(self, limit: int = 50, before: int | None = None) -> list[SkillChange]:
        """Return the changes, newest first; only those older than the change `before` if it is given."""
        if not (self._root / JOURNAL).exists():
            return []
        self._settle()
        return self._journal.changes(limit, before)

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    # ------------------------------------------------------------------ private

    def _change(
        self,
        path: str,
        action: str,
        edit: Callable[[str | None], str | None],
        session_id: str,
        origin: Origin | None = None,
    ) -> int:
        file = self._root / path
        if not _within(file, self._root):
            raise SkillError(f"{path!r} leads out of the skills folder, by a link", "choose another category")
        # Other processes write the same folder: the lock spans from the read to the end of the write.
        with locked(self._root / JOURNAL):
            self._journal.settle(self._text)
            before = self._text(path)
            after = edit(before)

            # An editor does not take our lock: this runs directly before the rename.
            def check() -> None:
                if self._text(path) != before:
                    raise SkillError(f"{path!r} was changed by another program just now", "try again")

            if (
                after is not None and origin is not None
            ):  # before the file: after a crash it may not pass for a person's
                self.origins.record(
                    {normalize_lines(after): origin}, session_id, raise_to=origin in ("person", "owner")
                )
            change = self._journal.begin(path, action, before, after, session_id)
            if after is None:
                check()
                _delete(file)
            else:
                write_checked(file, after.encode(), _mode(file), check)
            self._journal.finish(change)
            return change

    def _view(self, skill: Skill, file: str) -> str:
        path = skill.folder / (file or FILE)
        if file and not _within(path, skill.folder):
            raise SkillError(f"{file!r} lies outside the skill", "name a file inside its folder")
        text = _read_text(path, MAX_FILE_BYTES if file else MAX_SKILL_CHARS)
        if text is None:
            raise SkillError(
                f"skill {skill.name!r} has no file {file!r}", f"it has: {', '.join(_files(skill))}"
            )
        return text

    def _new(self, before: str | None, name: str, content: str) -> str:
        for skill in self.skills():
            if skill.name == name:
                instead = "patch it instead" if skill.own else "it is only read: choose another name"
                raise SkillError(f"skill {name!r} exists already", instead)
        if before is not None:
            reason = "can't be used on this platform, or at all"
            raise SkillError(f"there is a skill {name!r} that {reason}", "choose another name")
        return self._accepted(content, name, lambda text, _: parse_skill(text))

    def _patched(self, before: str | None, name: str, old_text: str, new_text: str) -> str:
        if before is None:
            raise SkillError(f"skill {name!r} is gone", "create it anew")
        text = normalize_lines(before)
        occurrences = text.count(old_text) if old_text else 0
        if occurrences != 1:
            where = "is not in" if not occurrences else f"is {occurrences} times in"
            raise SkillError(
                f"old_text {clip(old_text, _INDEX_DESCRIPTION_CHARS)!r} {where} skill {name!r}",
                "copy one unique place of it",
            )
        line_end = "\r\n" if before.partition("\n")[0].endswith("\r") else "\n"
        changed = self._accepted(text.replace(old_text, new_text), name, read_skill)
        return changed.replace("\n", line_end)

    def _accepted(self, content: str, name: str, parse: Callable[[str, str], SkillDocument]) -> str:
        content = normalize_lines(storable(content))
        document = parse(content, name)
        if len(content) > MAX_SKILL_CHARS:
            raise SkillError(
                f"the skill would have {len(content):,} characters, more than {MAX_SKILL_CHARS:,}",
                "shorten it",
            )
        if document.name != name:
            raise SkillError(f"the front matter names {document.name!r}, not {name!r}", "use one name")
        threat = self._scan(content)
        if threat is not None:
            raise SkillError(
                f"the skill was refused: {threat.message}",
                "leave that part out, or let the person write it: files that a person puts there are not refused",
            )
        return content

    def _check_texts(self, files: Mapping[str, bytes]) -> None:
        """Raise `SkillError` for a file in whose text the scan finds something. What is no UTF-8 is shown to no model."""
        for file, data in files.items():
            with contextlib.suppress(UnicodeDecodeError):
                threat = self._scan(normalize_lines(data.decode("utf-8")))
                if threat is not None:
                    raise SkillError(
                        f"its file {file!r} was refused: {threat.message}",
                        "leave that part out; files that a person puts there are not refused",
                    )

    def _own(self, name: str) -> Skill:
        skill = self.get(name)
        if not skill.own:
            raise SkillError(f"skill {name!r} lies in {str(skill.folder)!r}", "it is only read from there")
        return skill

    def _path(self, skill: Skill) -> str:
        return f"{skill.folder.relative_to(self._root).as_posix()}/{FILE}"

    def _read(self) -> tuple[list[Skill], list[Skill], list[tuple[Path, str]]]:
        """Return the skills for this platform, those for other platforms, and files that can't be used with the reason."""
        usable: dict[str, Skill] = {}
        hidden: list[Skill] = []
        unusable: list[tuple[Path, str]] = []
        for root, path in self._files(unusable):
            try:
                skill = self._skill(root, path)
            except SkillError as exc:
                unusable.append((path, str(exc)))
                continue
            if skill.name in usable:
                unusable.append((path, f"hidden by the skill of that name in {usable[skill.name].folder}"))
            elif not skill.document.platforms or self._platform in skill.document.platforms:
                usable[skill.name] = skill
            else:
                hidden.append(skill)
        return sorted(usable.values(), key=lambda skill: (skill.category, skill.name)), hidden, unusable

    def _skill(self, root: Path, path: Path) -> Skill:
        if path.name != FILE:
            raise SkillError(f"the file of a skill is named {FILE}", "rename it")
        text = _read_text(path, MAX_SKILL_CHARS)
        if text is None:
            raise SkillError("it is a link to nowhere, or was just deleted", "mend or remove the link")
        document = read_skill(text, path.parent.name)
        folder = path.parent.relative_to(root)
        if str(folder) != storable(str(folder)):
            raise SkillError("the name of its folder is not UTF-8 text", "rename it")
        category = "/".join(folder.parts[:-1])
        if not _CATEGORY.fullmatch(category):  # the name of a folder is no place for sentences in the prompt
            category = "general"
        own = root == self._root and _within(path, root)
        # The skills of another home bring their origins.
        origins = self.origins if own else NoteOrigins(root / f".{ORIGINS}")
        known = origins.read().of(text)
        origin: Origin = "file" if known.origin == "person" else known.origin
        accepted = origin in self._always_indexed and (known != UNKNOWN or "file" in self._always_indexed)
        waits = not may_command(origin) and not accepted
        return Skill(category, document, path.parent, own, origin, waits)

    def _files(self, unusable: list[tuple[Path, str]]) -> Iterator[tuple[Path, Path]]:
        """Yield the files of skills, each with its root. A folder that can't be read is added to `unusable`."""

        def fault(exc: OSError) -> None:
            if os.path.isdir(exc.filename):  # noqa: PTH112  as above
                reason = SkillError(
                    f"its folder can't be read: {exc.strerror or exc}", "check its owner and mode"
                )
                unusable.append((Path(exc.filename, FILE), str(reason)))

        # One set for all roots, since one may lie in another; real paths, since links may form a circle.
        seen: set[str] = set()
        for root in (self._root, *self._external):
            for folder, inner, names in os.walk(root, onerror=fault, followlinks=True):
                real = os.path.realpath(folder)
                depth = len(Path(folder).relative_to(root).parts)
                if real in seen or depth >= MAX_DEPTH:
                    inner.clear()
                inner[:] = sorted(
                    name for name in inner if not name.startswith(".") and not name.endswith(PARTIAL)
                )
                matches = [
                    name for name in names if name == FILE or (name.lower() == FILE.lower() and depth == 2)
                ]
                if matches and real not in seen:
                    yield root, Path(folder) / min(matches)  # SKILL.md sorts before skill.md
                seen.add(real)

    def _text(self, path: str) -> str | None:
        return _read_exactly(self._root / path)

    def _settle(self) -> None:
        with locked(self._root / JOURNAL):
            self._journal.settle(self._text)


def open_skills(
    home: HermesHome, config: Config, owner: str = "", provider_folders: Sequence[Path] = ()
) -> SkillStore:
    """Return the store of the skills of a `Session.owner`; "" is the person at home.

    Without `memory.per_user` all share the skills of the home. The folders of `skills.external_dirs` may be private, so
    other users read only those of `memory.shared_base`, and those that came with the provider (`provider_folders`).
    """
    owner = owner if config.memory.per_user else ""
    base = home.path / expanded(config.memory.shared_base) / "skills" if config.memory.shared_base else None
    shared = [base] if base is not None and base.is_dir() else []
    accepted = tuple(RANKS) if config.memory.trust == "open" else config.memory.accepted_origins
    external: tuple[str, ...] = () if owner else config.skills.external_dirs
    folders: list[str | Path] = [*external, *shared, *provider_folders]
    verdicts = Verdicts(home)
    return SkillStore(
        skills_folder(home, owner),
        folders,
        scan=verdicts.scan,
        verdicts=verdicts,
        owner=owner,
        always_indexed=accepted,
    )


def skills_folder(home: HermesHome, owner: str = "") -> Path:
    """Return the folder of skills of a `Session.owner`; "" is the person at home."""
    return home.folder_of(owner) / "skills" if owner else home.skills


def index_line(skill: Skill) -> str:
    """Return the line of a skill in the list of skills of the system prompt."""
    description = clip(skill.document.description, _INDEX_DESCRIPTION_CHARS)
    return _one_line(f"- {skill.category}/{skill.name}: {description}")


def _one_line(text: str) -> str:
    """Return a line of the index without what is neutralised in a file."""
    return " ".join(neutralize(text)[0].split())


def _restored(change: SkillChange, now: str | None) -> str | None:
    if not same_text(now, change.after):
        raise SkillError(f"{change.path!r} was changed since", "edit it by hand")
    return change.before


def _read_text(path: Path, limit: int) -> str | None:
    """Return the text for a model or a person. What is beyond `limit` characters is cut, and the last line says so."""
    text = _read_exactly(path, cut=True)
    if text is None:
        return None
    text = normalize_lines(text)
    if len(text) <= limit and path.stat().st_size <= MAX_FILE_BYTES:
        return text
    return f"{text[:limit]}\n\n[cut after {min(len(text), limit):,} characters; the file has {path.stat().st_size:,} bytes]"


def _read_exactly(path: Path, *, cut: bool = False) -> str | None:
    """Return the text of a file; None if there is no file. With `cut`, return at most its first `MAX_FILE_BYTES`."""
    try:
        with open(path, "rb", opener=open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SkillError(f"{str(path)!r} is not a regular file", "move it away")
            data = file.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as exc:
        raise SkillError(
            f"can't read {str(path)!r}: {exc.strerror or exc}", remedy_for(exc, "check its owner and mode")
        ) from exc
    whole = len(data) <= MAX_FILE_BYTES
    if not whole and not cut:
        raise SkillError(f"{str(path)!r} is larger than {MAX_FILE_BYTES // 1024} KB", "split it")
    try:
        # A cut may fall into the middle of a letter, which is no fault of the file.
        return codecs.getincrementaldecoder("utf-8")().decode(data[:MAX_FILE_BYTES], final=whole)
    except UnicodeDecodeError as exc:
        raise SkillError(f"{str(path)!r} is not UTF-8 text", "save it as UTF-8") from exc


def _check_free_place(root: Path, path: str, files: Mapping[str, bytes]) -> None:
    """Raise `SkillError` if a new skill at `path` would lie in or around another one, or its files replace others."""
    folder = root / path
    above = [parent for parent in folder.parents if parent.is_relative_to(root) and parent != root]
    below = [Path(at, inner) for at, names, _ in os.walk(folder) for inner in names]
    for other in (*above, *below):
        if os.path.lexists(other / FILE):
            place = other.relative_to(root).as_posix()
            raise SkillError(
                f"{path!r} and the skill {place!r} that is here lie in each other",
                "move that skill away first",
            )
    for file in (FILE, *files):
        target = folder / file
        if os.path.realpath(target) != os.path.join(os.path.realpath(root), path, file):  # noqa: PTH118  as above
            raise SkillError(f"{str(target)!r} is a link, or lies behind one", "remove the link first")
        if os.path.lexists(target) and not _has_bytes(target, files.get(file)):
            raise SkillError(
                f"{str(target)!r} is here with another content and stays as it is", "move it away first"
            )
        blocking = next((at for at in target.parents if os.path.lexists(at) and not at.is_dir()), None)
        if blocking is not None:
            raise SkillError(f"{str(blocking)!r} is no folder", "move it away first")


def _has_bytes(path: Path, data: bytes | None) -> bool:
    """Return True if the path is a regular file with these bytes."""
    if data is None or not path.is_file() or path.stat().st_size != len(data):
        return False
    return path.read_bytes() == data


def _mode(file: Path) -> int:
    """Return the mode that the file keeps when it is rewritten; a new file is private."""
    try:
        return stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return PRIVATE_FILE


def _delete(file: Path) -> None:
    """Delete the file, and its folder if that is empty then."""
    try:
        file.unlink(missing_ok=True)
    except OSError as exc:
        raise StorageError(
            f"can't delete {str(file)!r}: {exc.strerror or exc}", "check who owns the folder and its mode"
        ) from exc
    with contextlib.suppress(OSError):
        file.parent.rmdir()


def _within(path: Path, folder: Path) -> bool:
    """Return True if the path, with all links followed, lies in the folder. An impossible name lies nowhere."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    except ValueError:
        return False


def _files(skill: Skill) -> list[str]:
    matches = (
        storable(path.relative_to(skill.folder).as_posix())
        for path in skill.folder.rglob("*")
        if os.path.isfile(path)  # noqa: PTH113  `is_file` raises for a link that can't be followed
    )
    return sorted(matches)[:50]


# ------------------------------------------------------------------------------------------------------------- journal

MAX_CHANGES = 1000
"""Changes kept; an older change can't be undone."""

_TABLE = """
CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path TEXT NOT NULL,
    action TEXT NOT NULL,
    at REAL NOT NULL,
    before TEXT,
    after TEXT,
    session_id TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0
) STRICT
"""
_SELECT = "SELECT id, path, action, at, before, after, session_id FROM changes"


@dataclass(frozen=True, slots=True)
class SkillChange:
    """Change of one file: its exact text before and after, None if there was or is no file."""

    id: int
    path: str
    action: str
    at: float
    before: str | None
    after: str | None
    session_id: str


class SkillJournal:
    """Journal of every change that the agent makes to a skill under one folder, for history and undo.

    A change is first an intent, then the file is replaced, then the change is done. After a crash, the content of the
    file tells whether the change happened. All writing happens under the lock of the skills.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._database = Database(path, MIGRATIONS, reopen_moved=True, fixed_sql=True)
        self._chain = EventChain(self._database, MAX_CHANGES, clock)
        self._clock = clock

    def begin(self, path: str, action: str, before: str | None, after: str | None, session_id: str) -> int:
        """Record a change that is about to happen, and return its id."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "INSERT INTO changes (path, action, at, before, after, session_id) VALUES (?, ?, ?, ?, ?, ?)",
                (path, action, self._clock(), before, after, session_id),
            )
            # The oldest changes go in the same transaction, so that the journal never grows beyond its limit.
            connection.execute("DELETE FROM changes WHERE id <= ?", ((row.lastrowid or 0) - MAX_CHANGES,))
            return row.lastrowid or 0

    def finish(self, change: int) -> None:
        """Mark a change as done, and append its event to the record."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE changes SET done = 1 WHERE id = ?", (change,))
            row = connection.execute(_SELECT + " WHERE id = ?", (change,)).fetchone()
            if row is not None:
                details = {"content": _digest(row), "session": row["session_id"]}
                self._chain.append(row["action"], row["path"], details, change)

    def record(self, kind: str, subject: str, **details: str) -> None:
        """Record a decision of a person about the text with the hash `subject`: confirm, reject or allow."""
        self._chain.append(kind, subject, details)

    def verify(self) -> ChainReport:
        """Check that the record of events is whole and that the history is as it was recorded."""
        with self._database.transaction():  # no change is stored between the two queries
            return self._chain.check(self._contents())

    def accept(self) -> None:
        """Record that a person accepts the history as it is. `verify` checks it from here on."""
        with self._database.transaction():
            self._chain.accept(max(self._contents(), default=0))

    def _contents(self) -> dict[int, str]:
        rows = self._database.execute(_SELECT + " WHERE done = 1 ORDER BY id")
        return {row["id"]: _digest(row) for row in rows}

    def settle(self, read: Callable[[str], str | None]) -> None:
        """Decide the intents that a crash left: done if the file has their text, otherwise the change never happened."""
        rows = self._database.execute(_SELECT + " WHERE done = 0").fetchall()
        for row in rows:
            try:
                now = read(row["path"])
            except SkillError:  # not readable now: decided at a later call
                continue
            if same_text(now, row["after"]):
                self.finish(row["id"])
            else:
                self._database.execute("DELETE FROM changes WHERE id = ?", (row["id"],))

    def changes(self, limit: int = 50, before: int | None = None) -> list[SkillChange]:
        """Return the changes that happened, newest first; only those older than `before` if it is given."""
        sql = _SELECT + " WHERE done = 1 AND id < ? ORDER BY id DESC LIMIT ?"
        return [
            SkillChange(*row)
            for row in self._database.execute(sql, (2**62 if before is None else before, limit))
        ]

    def last_standing(self) -> SkillChange | None:
        """Return the newest change that no later change took back, or None."""
        standing: list[SkillChange] = []
        for change in reversed(self.changes(MAX_CHANGES)):
            last = next((earlier for earlier in reversed(standing) if earlier.path == change.path), None)
            if (
                change.action == "undo"
                and last
                and same_text(last.before, change.after)
                and same_text(last.after, change.before)
            ):
                standing.remove(last)
            else:
                standing.append(change)
        return standing[-1] if standing else None

    def find(self, change: int) -> SkillChange | None:
        """Return the change of this id if it happened, else None."""
        # As a text, which SQLite compares as a number: it refuses an int that is too large for an id.
        row = self._database.execute(_SELECT + " WHERE id = ? AND done = 1", (str(change),)).fetchone()
        return SkillChange(*row) if row else None

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _digest(row: sqlite3.Row) -> str:
    """Return the digest of what a change did."""
    return text_digest(row["path"], row["action"], row["before"], row["after"])


def same_text(left: str | None, right: str | None) -> bool:
    """Compare two texts of a file without regard to line ends and a byte order mark. None is no file."""
    return left == right or (
        left is not None and right is not None and normalize_lines(left) == normalize_lines(right)
    )


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(_TABLE)
    EventChain.create(connection)


MIGRATIONS: tuple[Migration, ...] = ((SCHEMA_1, _create),)
