"""Skills as a part of a home: what export, import, review, forget and the timeline ask of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hermes_core import HermesHome
from hermes_core.config import Config
from hermes_core.contract.extensions import PartItem
from hermes_core.curated.origins import entry_hash
from hermes_core.storage.engine import Engine
from hermes_core.storage.files import delete_path
from hermes_memory_agent.skills.document import read_skill
from hermes_memory_agent.skills.history import SkillChange, SkillHistory
from hermes_memory_agent.skills.portable import check_skill, export_skills, import_skill
from hermes_memory_agent.skills.store import SkillStore, key_of_folder, open_skills, skills_folder

# Digits of a hash in the name of an item: enough to tell the items of a home apart.
_HASH_DIGITS = 16


class SkillPart:
    """The skills of a home and of its users."""

    def __init__(self, home: HermesHome, config: Config) -> None:
        self._home, self._config = home, config

    def items(self, database: Engine, owner: str) -> SkillItems:
        """Return the skills of a `Session.owner`, "" for the person at home."""
        store = open_skills(self._home, self._config, database, owner)
        return SkillItems(store, enabled=self._config.skills.enabled)

    def export_records(
        self, database: Engine, wanted: Callable[[str], bool], leave_out: Callable[[str], object]
    ) -> Iterator[dict[str, Any]]:
        """Yield a record for each skill, with all files beside its SKILL.md."""
        return export_skills(self._home, database, wanted, leave_out)

    def check_record(self, record: Mapping[str, Any]) -> None:
        """Raise `ImportFailed` if a record is none that `export_records` yields."""
        check_skill(record)

    def import_record(self, database: Engine, record: Mapping[str, Any], *, keep_origins: bool) -> str:
        """Write a skill that is not there yet. Return "imported", "present" or "different"."""
        return import_skill(self._home, database, record, keep_origins=keep_origins)

    def check_text(self, name: str, text: str) -> None:
        """Raise `SkillError` if a text from another program can't be a skill in the folder `name`."""
        read_skill(text, name)

    def forget(self, database: Engine, owner: str) -> None:
        """Delete the folder of a user's skills, with their history and origins."""
        folder = skills_folder(self._home, owner)
        if not owner:
            return
        if folder.is_dir():
            delete_path(folder)
        # Then: without its origin, a skill that is left after a crash would pass for the person's.
        SkillHistory(database, key_of_folder(self._home, folder)).forget()


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

    def history(self, limit: int, before: int | None = None) -> list[SkillChange]:
        """Return the changes, newest first, only those older than `before` if it is given."""
        return self._store.history(limit, before)

    def undo(self, change: int) -> SkillChange:
        """Undo the change of this id, and return it. Raises `SkillError` if the skill was changed since."""
        return self._store.undo(change)

    def restore(self, change: int) -> SkillChange:
        """Bring a skill back as it was after this change, and return the change."""
        return self._store.restore(change)
