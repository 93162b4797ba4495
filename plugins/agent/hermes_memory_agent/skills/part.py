"""Skills as a part of a home: what export, import, review, verify, forget and the timeline ask of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_core import HermesHome
from hermes_core.config import Config
from hermes_core.contract.extensions import PartItem
from hermes_core.curated.origins import entry_hash
from hermes_core.storage.chain import ChainReport
from hermes_core.storage.inventory import Inventory
from hermes_memory_agent.skills.document import read_skill
from hermes_memory_agent.skills.portable import check_skill, export_skills, import_skill
from hermes_memory_agent.skills.store import JOURNAL, SkillChange, SkillStore, open_skills, skills_folder

# Digits of a hash in the name of an item: enough to tell the items of a home apart.
_HASH_DIGITS = 16


class SkillPart:
    """The skills of a home and of its users."""

    def __init__(self, home: HermesHome, config: Config) -> None:
        self._home, self._config = home, config

    def items(self, owner: str) -> SkillItems:
        """Return the skills of a `Session.owner`, "" for the person at home."""
        return SkillItems(open_skills(self._home, self._config, owner), enabled=self._config.skills.enabled)

    def journals(self) -> Iterator[SkillRecord]:
        """Yield the record of each folder of skills, also those that are lost."""
        root, users = skills_folder(self._home), self._home.memories / "users"
        yield SkillRecord("skills", root)
        lost = (store.path for store in Inventory(self._home.path).lost())
        roots = {*users.glob("*/skills")}
        roots |= {path.parent for path in lost if path.name == JOURNAL and users in path.parents}
        for folder in sorted(roots):
            yield SkillRecord(f"skills of {folder.parent.name}", folder)

    def export_records(
        self, wanted: Callable[[str], bool], leave_out: Callable[[str], object]
    ) -> Iterator[dict[str, Any]]:
        """Yield a record for each skill, with all files beside its SKILL.md."""
        return export_skills(self._home, wanted, leave_out)

    def check_record(self, record: Mapping[str, Any]) -> None:
        """Raise `ImportFailed` if a record is none that `export_records` yields."""
        check_skill(record)

    def import_record(self, record: Mapping[str, Any], *, keep_origins: bool) -> str:
        """Write a skill that is not there yet. Return "imported", "present" or "different"."""
        return import_skill(self._home, record, keep_origins=keep_origins)

    def check_text(self, name: str, text: str) -> None:
        """Raise `SkillError` if a text from another program can't be a skill in the folder `name`."""
        read_skill(text, name)

    def forget(self, owner: str) -> None:
        """Delete the folder of a user's skills."""
        folder = skills_folder(self._home, owner)
        if owner and folder.is_dir():
            # First: if this process dies in between, nothing that was deleted on purpose counts as lost.
            Inventory(self._home.path).remove_below(folder)
            shutil.rmtree(folder)


class SkillItems:
    """The skills of one owner.

    Args:
        enabled: False if config.yaml switches skills off, so that none waits.
    """

    def __init__(self, store: SkillStore, *, enabled: bool) -> None:
        self._store, self._enabled = store, enabled

    def waiting(self) -> Iterator[PartItem]:
        """Yield each skill that is in no list of skills before a person confirms it."""
        for skill in self._store.waiting() if self._enabled else ():
            text = self._store.view(skill.name)
            yield PartItem(f"skill:{entry_hash(text)[:_HASH_DIGITS]}", skill.name, text, skill.origin)

    def text(self, name: str) -> str:
        """Return the text of a SKILL.md. Raises `SkillError`."""
        return self._store.view(name)

    def confirm(self, item: PartItem) -> None:
        """Store that a person read and confirmed a skill. Raises `SkillError` if its text is another one now."""
        self._store.confirm(item.name, item.text)

    def reject(self, item: PartItem) -> str:
        """Delete a skill, and return the command that brings it back."""
        self._store.delete(item.name)
        return "hermes-memory skills undo"

    def origins_fault(self) -> str:
        """Return why the origins of the skills can't be read, "" if they can."""
        return self._store.origins.read().fault if self._enabled else ""

    def rebuild_origins(self) -> int:
        """Replace unreadable origins. Return the number of skills, all of which wait from then on."""
        return self._store.rebuild_origins()

    def history(self, limit: int, before: int | None = None) -> list[SkillChange]:
        """Return the changes, newest first, only those older than `before` if it is given."""
        return self._store.history(limit, before)

    def undo(self, change: int) -> SkillChange:
        """Undo the change of this id, and return it. Raises `SkillError` if the skill was changed since."""
        return self._store.undo(change)

    def restore(self, change: int) -> SkillChange:
        """Bring a skill back as it was after this change, and return the change."""
        return self._store.restore(change)

    def close(self) -> None:
        """Close the journal."""
        self._store.close()


class SkillRecord:
    """The record of the changes in one folder of skills.

    Attributes:
        name: Name of the record, for people.
        path: The file of the journal.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.path = name, folder / JOURNAL
        self._store = SkillStore(folder)

    def verify(self) -> ChainReport | None:
        """Check the record; None if nothing was recorded yet. Raises `StorageError`."""
        return self._store.verify()

    def accept_history(self) -> None:
        """Record that a person accepts the history as it is."""
        self._store.accept_history()

    def close(self) -> None:
        """Close the file."""
        self._store.close()
