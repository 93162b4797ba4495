"""Store of a home's skills: find, show and change them, with scan, lock, history and undo.

`skills/CATEGORY/NAME/SKILL.md` are the agent's own, in the home or in the folder of a user. Skills of further folders are read and never written.
"""

from __future__ import annotations

import codecs
import contextlib
import math
import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_core import HermesHome, sanitize_context
from hermes_core.config import Config, load_config
from hermes_core.contract.values import Origin, Session
from hermes_core.curated.origins import PERSON, UNKNOWN, NoteOrigin, entry_hash
from hermes_core.curated.rows import place_of
from hermes_core.errors import HermesError, SkillError, StorageError
from hermes_core.home import expanded
from hermes_core.kit import Database, clip, storable, write_atomic
from hermes_core.safety.neutral import neutralize
from hermes_core.safety.origin import RANKS, Reading, lowest, may_command, origin_of_text
from hermes_core.safety.scan import Scan, first_threat
from hermes_core.safety.templates import without_turns
from hermes_core.sessions.home_store import open_sessions
from hermes_core.shell_words import shell_word
from hermes_core.storage.engine import Engine
from hermes_core.storage.files import (
    PRIVATE_FILE,
    delete_path,
    locked,
    open_at_once,
    remedy_for,
    write_checked,
)
from hermes_core.storage.inventory import STATE_DB, Inventory
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
from hermes_memory_agent.skills.history import SkillChange, SkillHistory, same_text

FILE = "SKILL.md"

LOCK = ".skills"
"""Name in a folder of skills whose lock file is held during a change."""

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
        database: The database of the home, with the history and the origins.
        external: Folders; a relative path starts at the home, beside `root`.
        scan: Threat scan of what the agent writes.
        verdicts: Verdicts of the person on the files that they put here; None for none.
        platform: linux, macos or windows; the default is this system.
        owner: `Session.owner` of the user whose skills these are.
        always_indexed: Low origins whose skills are in the index without a confirmation.
        key: Key of `root` in the database, see `SkillHistory`.
        place: This machine and home, if other machines use the database too.
        lost_at: Time in epoch seconds at which the database was lost. Nobody knows any more where older skills come from.
    """

    def __init__(
        self,
        root: Path,
        database: Engine,
        external: Iterable[str | Path] = (),
        *,
        scan: Scan = first_threat,
        verdicts: Verdicts | None = None,
        platform: str | None = None,
        owner: str = "",
        always_indexed: Collection[str] = (),
        key: str = "skills",
        place: str = "",
        lost_at: float = 0.0,
    ) -> None:
        self._root = root
        self.owner = owner
        self._history, self._lost_at = SkillHistory(database, key, place), lost_at
        self._always_indexed = frozenset(always_indexed)
        self._external = tuple(root.parent / expanded(folder) for folder in external)
        self._scan = scan
        self._verdicts = verdicts or Verdicts(HermesHome(root.parent))
        self._platform = platform or OPERATING_SYSTEMS.get(sys.platform, sys.platform)

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
        command = f"hermes-memory memory allow --skill {shell_word(skill.name)}"
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
        self._history.confirm(text)

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
        inside = reading.in_scope_of(self.owner)
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
        target = self._last_standing() if change is None else self._history.find(change)
        if target is None:
            what = (
                "there is nothing to undo" if change is None else f"there is no change {change!r} of skills"
            )
            raise SkillError(what, "hermes-memory skills history lists the changes")
        self._change(target.path, "undo", lambda now: _restored(target, now), session_id, undoes=target.id)
        return target

    def restore(self, change: int, session_id: str = "") -> SkillChange:
        """Bring back a skill as it was right after the change of this id. Raises `SkillError` if there is no such change."""
        self._settle()
        version = self._history.find(change)
        if version is None:
            raise SkillError(
                f"there is no change {change!r} of skills", "hermes-memory skills history lists the changes"
            )
        self._change(version.path, "restore", lambda _: version.after, session_id)
        return version

    def history(self, limit: int = 50, before: int | None = None) -> list[SkillChange]:
        """Return the changes, newest first; only those older than the change `before` if it is given."""
        self._settle()
        return self._history.changes(limit, before)

    # ------------------------------------------------------------------ private

    def _change(
        self,
        path: str,
        action: str,
        edit: Callable[[str | None], str | None],
        session_id: str,
        origin: Origin | None = None,
        undoes: int | None = None,
    ) -> int:
        file = self._root / path
        if not _within(file, self._root):
            raise SkillError(f"{path!r} leads out of the skills folder, by a link", "choose another category")
        # Other processes write the same folder: the lock spans from the read to the end of the write.
        with locked(self._root / LOCK):
            self._history.settle(self._text)
            before = self._text(path)
            after = edit(before)

            # An editor does not take our lock: this runs directly before the rename.
            def check() -> None:
                if self._text(path) != before:
                    raise SkillError(f"{path!r} was changed by another program just now", "try again")

            change = self._history.begin(path, action, before, after, session_id, origin, undoes)
            if after is None:
                check()
                _delete(file)
            else:
                write_checked(file, after.encode(), _mode(file), check)
            self._history.finish(change)
            return change

    def _last_standing(self) -> SkillChange | None:
        """Return the newest change that is in effect here, or None."""
        # A person may have taken a change back by hand, and other machines have files of their own.
        standing = self._history.standing()
        return next((one for one in standing if not same_text(self._text(one.path), one.before)), None)

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
        unusable: list[tuple[Path, str]] = []
        files: list[_SkillFile] = []
        for root, path in self._files(unusable):
            try:
                files.append(_read_file(root, path))
            except SkillError as exc:
                unusable.append((path, str(exc)))
        usable: dict[str, Skill] = {}
        hidden: list[Skill] = []
        for file, known in zip(files, self._origins(files, unusable), strict=True):
            skill = self._skill(file, known)
            if skill.name in usable:
                reason = f"hidden by the skill of that name in {usable[skill.name].folder}"
                unusable.append((file.path, reason))
            elif not skill.document.platforms or self._platform in skill.document.platforms:
                usable[skill.name] = skill
            else:
                hidden.append(skill)
        return sorted(usable.values(), key=lambda skill: (skill.category, skill.name)), hidden, unusable

    def _skill(self, file: _SkillFile, known: NoteOrigin) -> Skill:
        own = file.root == self._root and _within(file.path, file.root)
        origin: Origin = "file" if known.origin == "person" else known.origin
        accepted = origin in self._always_indexed and (known != UNKNOWN or "person" in self._always_indexed)
        waits = origin != "file" and not may_command(origin) and not accepted
        return Skill(file.category, file.document, file.path.parent, own, origin, waits)

    def _origins(self, files: Sequence[_SkillFile], unusable: list[tuple[Path, str]]) -> list[NoteOrigin]:
        """Return the origin of each text. If a database can't be read, which is added to `unusable`, it is unknown."""
        known: dict[Path, Mapping[str, NoteOrigin]] = {}
        unread: set[Path] = set()
        for root in dict.fromkeys((self._root, *(file.root for file in files))):
            # What a person confirmed here counts for the skills of another home too.
            here = known.get(self._root, {})
            known[root] = {key: one for key, one in here.items() if one.confirmed}
            try:
                if root == self._root:
                    known[root] = self._history.origins(file.text for file in files)
                else:
                    beside = _origins_beside(root, [file.text for file in files if file.root == root])
                    known[root] = {**beside, **known[root]}
            except HermesError as exc:
                unread.add(root)
                unusable.append((root, f"nobody knows where its skills come from, so they wait: {exc}"))
        origins = []
        for file in files:
            is_lost = file.root == self._root and self._lost_at and _changed_at(file.path) < self._lost_at
            default = UNKNOWN if is_lost or file.root in unread else PERSON
            origins.append(known[file.root].get(entry_hash(file.text), default))
        return origins

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
        if self._history.pending():
            with locked(self._root / LOCK):
                self._history.settle(self._text)


@dataclass(frozen=True, slots=True)
class _SkillFile:
    root: Path
    path: Path
    category: str
    document: SkillDocument
    text: str


def _read_file(root: Path, path: Path) -> _SkillFile:
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
    return _SkillFile(root, path, category, document, text)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted just now
        return 0.0


def _origins_beside(folder: Path, texts: Sequence[str]) -> Mapping[str, NoteOrigin]:
    """Return the origins of skills that another home has, from its database."""
    folder = Path(os.path.realpath(folder))
    of_user = folder.parent.parent.parts[-2:] == ("memories", "users")
    home = HermesHome(folder.parents[3] if of_user else folder.parent)
    url = load_config(home).storage.url if home.config_yaml.exists() else ""
    if folder.name != "skills" or not (url or home.state_db.exists()):
        return {}
    database = (
        open_sessions(home, load_config(home)).database if url else Database(home.state_db, read_only=True)
    )
    with contextlib.closing(database):
        # Hermes Agent has a state.db too, with other tables.
        there = "SELECT 1 FROM sqlite_schema WHERE name = 'note_entries'"
        known = url or database.execute(there).fetchone()
        return SkillHistory(database, key_of_folder(home, folder)).origins(texts) if known else {}


def open_skills(
    home: HermesHome,
    config: Config,
    database: Engine,
    owner: str = "",
    provider_folders: Sequence[Path] = (),
) -> SkillStore:
    """Return the store of the skills of a `Session.owner`; "" is the person at home.

    The caller closes the database.

    Without `memory.per_user` all share the skills of the home. The folders of `skills.external_dirs` may be private, so
    other users read only those of `memory.shared_base`, and those that came with the provider (`provider_folders`).
    """
    owner = owner if config.memory.per_user else ""
    base = home.path / expanded(config.memory.shared_base) / "skills" if config.memory.shared_base else None
    shared = [base] if base is not None and base.is_dir() else []
    accepted = tuple(RANKS) if config.memory.trust == "open" else config.memory.accepted_origins
    external: tuple[str, ...] = () if owner else config.skills.external_dirs
    folders: list[str | Path] = [*external, *shared, *provider_folders]
    verdicts, inventory, folder = Verdicts(home), Inventory(home.path), skills_folder(home, owner)
    is_lost = not config.storage.url and inventory.lost_at(home.state_db) is not None
    return SkillStore(
        folder,
        database,
        folders,
        scan=verdicts.scan,
        verdicts=verdicts,
        owner=owner,
        always_indexed=accepted,
        key=key_of_folder(home, folder),
        place=place_of(home, shared=database.shared),
        lost_at=math.inf if is_lost else inventory.accepted(STATE_DB),
    )


def skills_folder(home: HermesHome, owner: str = "") -> Path:
    """Return the folder of skills of a `Session.owner`; "" is the person at home."""
    return home.folder_of(owner) / "skills" if owner else home.skills


def key_of_folder(home: HermesHome, folder: Path) -> str:
    """Return the key in the database of a folder of skills: "skills", or that of a user, below the folder of the notes."""
    return "skills" if folder == home.skills else folder.relative_to(home.memories).as_posix()


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
        with contextlib.suppress(FileNotFoundError):
            delete_path(file)
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
