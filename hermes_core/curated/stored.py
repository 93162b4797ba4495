"""The notes of one owner as they were read at one moment: entries, their origins, and what of them a model may see."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from hermes_core.config import Config
from hermes_core.config.profile import ProfileField, parse_profile_fields
from hermes_core.contract.values import MemoryTarget, Origin
from hermes_core.curated.base import SharedBase
from hermes_core.curated.document import (
    PROMPT_LIMITS,
    Allows,
    FlaggedEntry,
    NotesSnapshot,
    NotesUsage,
    base_block,
    base_entries,
    entries_of_prompt,
    entry_changes,
    flag_entries,
    is_incomplete,
    measure,
    project_of_prompt,
    prompt_block,
    scanned_entries,
    unreadable_block,
)
from hermes_core.curated.origins import PERSON, UNKNOWN, Note, NoteOrigin
from hermes_core.curated.profile import profile_values, undeclared_values
from hermes_core.curated.rows import StoredFile
from hermes_core.errors import ConfigError, MemoryConflict
from hermes_core.home import HermesHome, expanded
from hermes_core.safety.origin import lowest, may_command
from hermes_core.safety.templates import without_turns

if TYPE_CHECKING:
    from hermes_core.safety.scan import Scan

Trust = Literal["open", "guarded", "strict"]
"""Values of `memory.trust`: all notes in the system prompt; only those of the person and their agent, the others as data;
or the others only after a person confirmed them."""


class NoteSettings(Struct, frozen=True, kw_only=True):
    """Settings of the notes of a home, from `memory` in config.yaml.

    Attributes:
        limits: Largest number of characters of each file.
        enabled: The files that are in use.
        per_user: True to give each user who is not the person at home both files of their own.
        shared_base: File of notes, or folder with a MEMORY.md, that every prompt begins with and no write changes.
        trust: Where notes of low origin stand, see `Trust`.
        accepted_origins: Low origins whose notes a person always accepts.
        profile_fields: Typed fields at the beginning of USER.md.
        mirror: False to write and read no files: the notes are in the database only.
    """

    limits: Mapping[MemoryTarget, int] = MappingProxyType({"memory": 2200, "user": 1375, "project": 2200})
    enabled: tuple[MemoryTarget, ...] = ("memory", "user", "project")
    per_user: bool = True
    shared_base: Path | None = None
    trust: Trust = "guarded"
    accepted_origins: frozenset[str] = frozenset()
    profile_fields: tuple[ProfileField, ...] = ()
    mirror: bool = True

    @classmethod
    def of(cls, home: HermesHome, config: Config) -> NoteSettings:
        """Return the settings in config.yaml. Raises `ConfigError` for a field of the profile that is none."""
        memory, enabled = config.memory, list[MemoryTarget]()
        if memory.memory_enabled:
            enabled.append("memory")
        if memory.user_profile_enabled:
            enabled.append("user")
        try:
            fields = parse_profile_fields(memory.profile_fields)
        except ValueError as exc:
            raise ConfigError(f"memory.profile_fields: {exc}", "correct it in config.yaml") from exc
        return cls(
            limits={
                "memory": memory.memory_char_limit,
                "user": memory.user_char_limit,
                "project": memory.project_char_limit,
            },
            enabled=(*enabled, "project"),
            per_user=memory.per_user,
            shared_base=home.path / expanded(memory.shared_base) if memory.shared_base else None,
            trust=memory.trust,
            accepted_origins=frozenset(memory.accepted_origins),
            profile_fields=fields,
            mirror=memory.mirror,
        )

    def may_command(self, origin: NoteOrigin) -> bool:
        """Return True if a note of this origin may stand in a system prompt."""
        # A note whose origin was lost may come from anywhere, also if imports are accepted.
        accepted = origin.origin in self.accepted_origins and structs.replace(origin, pinned=False) != UNKNOWN
        return self.trust == "open" or may_command(origin.origin) or accepted


class DataNote(Struct, frozen=True):
    """Note that is no part of the system prompt, because of its origin or because the scan flagged it.

    `flag` is the reason of the scan, or "". `waits` is True if a person can confirm the note.
    """

    target: MemoryTarget
    entry: str
    origin: NoteOrigin
    flag: str = ""
    change: int = 0

    @property
    def waits(self) -> bool:
        """True if the origin keeps the note out of the system prompt."""
        return not may_command(self.origin.origin)


class StoredNotes:
    """The notes of one owner as they were read.

    Args:
        files: The files that are in use, by target.
        problems: The error of each file that can't be used now.
        unreachable: True if the database can't be read. The files are then what the views show, which is data.
        base: The shared base.
        project: Key of the repository of PROJECT.md.
        scan: Threat scan of entries.
        allows: Returns True for an entry that a person allowed.
        gone: Returns an entry as it was when it was last taken away; None if it never was.
    """

    def __init__(
        self,
        files: Mapping[MemoryTarget, StoredFile],
        problems: Mapping[MemoryTarget, MemoryConflict],
        settings: NoteSettings,
        *,
        unreachable: bool,
        base: SharedBase,
        project: str,
        scan: Scan,
        allows: Allows,
        gone: Callable[[str], Note | None],
    ) -> None:
        self.files, self.problems = files, problems
        self._settings, self.unreachable, self._base = settings, unreachable, base
        self._project, self._scan, self._allows, self._gone = project, scan, allows, gone

    # ------------------------------------------------------------------ entries

    def entries(self, target: MemoryTarget) -> tuple[str, ...]:
        """Return all entries of a file, including flagged ones.

        Raises:
            MemoryConflict: The file can't be used.
        """
        if conflict := self.problems.get(target):
            raise conflict
        return self.files[target].entries if target in self.files else ()

    def in_order(self, target: MemoryTarget) -> list[Note]:
        """Return the notes of a file, the profile first and then pinned ones. Raises `MemoryConflict`."""
        entries = self.entries(target)
        notes = list(self.files[target].notes) if target in self.files else []
        start = 1 if target == "user" and profile_values(entries, self._settings.profile_fields) else 0
        return [*notes[:start], *sorted(notes[start:], key=lambda note: not note.origin.pinned)]

    def usage(self, target: MemoryTarget) -> NotesUsage:
        """Return the number of characters and the limit of a file. Raises `MemoryConflict`."""
        return NotesUsage(measure(self.entries(target)), self._settings.limits[target])

    def profile(self) -> dict[str, str]:
        """Return the values of the typed fields in USER.md, by name. Raises `MemoryConflict`."""
        return profile_values(self.entries("user"), self._settings.profile_fields)

    def undeclared_profile(self) -> dict[str, str]:
        """Return the values between the typed fields of USER.md whose field is not declared any more, by name."""
        return undeclared_values(self.entries("user"), self._settings.profile_fields)

    def origin_of(self, entry: str) -> NoteOrigin:
        """Return the origin of an entry; that of a person for a text that is no entry."""
        return next((note.origin for _, note in self._notes() if note.text == entry), PERSON)

    def origins(self, turn: str = "") -> list[Origin]:
        """Return the origins of all entries, without those that this turn has written."""
        return [note.origin.origin for _, note in self._notes() if not turn or note.origin.turn != turn]

    def _notes(self) -> list[tuple[MemoryTarget, Note]]:
        """Return the notes of all files that can be used."""
        return [
            (target, note)
            for target, file in self.files.items()
            if target not in self.problems
            for note in file.notes
        ]

    # ------------------------------------------------------------------ what a model sees

    def snapshot(self) -> NotesSnapshot:
        """Return the blocks of the notes for the system prompt.

        Notes of low origin are left out; `data_notes` returns them. A file that can't be used has no block. If the
        database can't be read, a line says so in place of each.
        """
        blocks = {}
        for target in self.files:
            if target in self.problems:
                if self.unreachable:
                    blocks[target] = unreadable_block(target)
                continue
            notes = self.in_order(target)
            text = prompt_block(
                target,
                [note.text for note in notes if self._settings.may_command(note.origin)],
                self._settings.limits[target],
                self._scan,
                allows=self._allows,
                used=measure([note.text for note in notes]),
                project=self._project if target == "project" else "",
            )
            if text:
                blocks[target] = text
        return NotesSnapshot(blocks, base_block(self.shared_entries()))

    def shown_entries(self) -> list[str]:
        """Return the entries of the shared base and of all files that the system prompt of a new session shows."""
        return self.shared_entries() + [
            note.text
            for target in self.files
            for note, flag in self._scanned(target)
            if self._settings.may_command(note.origin) and not flag
        ]

    def data_notes(self) -> list[DataNote]:
        """Return the notes that stand in no system prompt because of their origin, or because the scan flagged them.

        Entries that are too large, or that imitate a block of the prompt, are no data either: no model sees them.
        """
        return [
            DataNote(target, note.text, note.origin, flag.reason if flag else "", note.change)
            for target in self.files
            for note, flag in self._scanned(target)
            if (flag or not self._settings.may_command(note.origin))
            and not (flag is not None and flag.id in ("too_large", "forged_frame"))
        ]

    def waiting_notes(self) -> list[DataNote]:
        """Return the notes whose origin keeps them out of the system prompt until a person confirms them.

        Unlike `data_notes`, this scans nothing.
        """
        return [
            DataNote(target, note.text, note.origin, change=note.change)
            for target, note in self._notes()
            if not self._settings.may_command(note.origin)
        ]

    def data_with_origins(self, turns: Collection[str] = ()) -> list[tuple[str, Origin]]:
        """Return the texts of the notes that wait and that a model may have read as data, with their origins.

        Args:
            turns: Ids of turns whose own notes are left out.
        """
        notes = [] if self._settings.trust == "strict" else self.waiting_notes()
        others = [note for note in notes if not note.origin.turn or note.origin.turn not in turns]
        return [(note.entry, note.origin.origin) for note in others]

    def recalled_notes(self) -> list[DataNote]:
        """Return the notes that the model gets as data: none under the trust "strict"."""
        return [] if self._settings.trust == "strict" else self.data_notes()

    def changes_since(self, prompt: str) -> tuple[list[str], list[str]]:
        """Return the entries that a stored prompt does not show although a new one would, and those that are gone.

        Both are empty while the database can't be read.
        """
        if self.unreachable:
            return [], []
        return entry_changes(prompt, without_turns(self.snapshot().render()))

    def outdated_origin(self, prompt: str) -> Origin | None:
        """Return the lowest origin of the notes in a stored prompt that may not stand in one any more; None for none.

        The origin of a note may be lowered after a session began, and a person may change `memory.trust`.
        """
        shown, base = entries_of_prompt(prompt)
        origins: list[str] = []
        # A database that can't be read says nothing new of notes that were allowed when the prompt was built.
        if shown and not self.unreachable:
            # The prompt breaks tokens of chat templates, so that such an entry is another text there.
            present = {
                text: note for _, note in self._notes() for text in (note.text, without_turns(note.text))
            }
            notes = [present.get(entry) or self._gone(entry) for entry in shown]
            origins += [
                note.origin.origin
                for note in notes
                if note is not None and not self._settings.may_command(note.origin)
            ]
        known = self._base.origins
        origins += [origin for entry in base if not may_command(origin := known.get(entry, PERSON).origin)]
        return lowest(origins) if origins else None

    def is_of_another_project(self, prompt: str) -> bool:
        """Return True if the notes on another repository than that of the working folder stand in a stored prompt."""
        key = project_of_prompt(prompt)
        return bool(key) and key != self._project

    def is_renewable(self, prompt: str) -> bool:
        """Return True if the database could not be read when a stored prompt was built, and can be read now."""
        return is_incomplete(prompt) and not self.problems

    def flagged(self, target: MemoryTarget | None = None) -> list[FlaggedEntry]:
        """Return the entries that no model may see. Files that can't be used at all are in `problems`.

        Entries far beyond the limit of the file, which no model sees either, are not scanned.
        """
        return [
            flag for name in ((target,) if target else self.files) for _, flag in self._scanned(name) if flag
        ]

    def flagged_among(self, target: MemoryTarget, notes: Sequence[Note]) -> dict[str, FlaggedEntry]:
        """Return those of some neighbouring notes of a file that no model may see, by their text."""
        return {note.text: flag for note, flag in self._scanned(target, notes) if flag}

    def _scanned(
        self, target: MemoryTarget, part: Sequence[Note] | None = None
    ) -> list[tuple[Note, FlaggedEntry | None]]:
        """Return the notes that a model may see, each with its flag if it is withheld; none of a file that can't be used.

        Entries in the system prompt are no neighbours of those that are data.

        Args:
            part: The notes that are meant; default: those at the beginning of the file.
        """
        if (target in self.problems and not self.unreachable) or target not in self.files:
            return []
        limit = self._settings.limits[target]
        notes = self.files[target].notes if part is None else part
        notes = notes[: len(scanned_entries([note.text for note in notes], limit))]
        flags: dict[int, FlaggedEntry | None] = {}
        for group in (True, False):
            places = [at for at, note in enumerate(notes) if self._settings.may_command(note.origin) is group]
            neighbours = [notes[at].text for at in places]
            group_flags = flag_entries(target, neighbours, limit, self._scan, self._allows)
            flags.update(zip(places, group_flags, strict=True))
        return [(note, flags[at]) for at, note in enumerate(notes)]

    # ------------------------------------------------------------------ the shared base

    def shared_entries(self) -> list[str]:
        """Return the entries of the shared base that a model may see."""
        return base_entries(self._base.entries, self._settings.limits["memory"], self._scan, self._allows)

    def base_problems(self) -> list[str]:
        """Return a sentence for each part of the shared base that no model sees."""
        entries, limit = self._base.entries, self._settings.limits["memory"]
        where = f"the shared base {str(self._settings.shared_base)!r}"
        if self._base.fault:
            return [
                f"{where} is in no prompt: {self._base.fault}; correct memory.shared_base in config.yaml, or the file"
            ]
        flagged = flag_entries("memory", scanned_entries(entries, limit), limit, self._scan, self._allows)
        problems = [
            f"an entry of {where} is in no prompt: {one.reason}; edit the file" for one in flagged if one
        ]
        if len(self.shared_entries()) + len(problems) < len(entries):
            more = f"{limit * PROMPT_LIMITS:,} characters"
            problems.append(f"{where} is longer than {more}, and the rest is in no prompt; shorten the file")
        return problems
