"""Checks of memories that leave a provider and come into one."""

from __future__ import annotations

from hermes_core import Session
from hermes_core.contract.values import MemoryRecord
from hermes_memory_testing.contract.suite import BOATHOUSE, TORTOISE, Suite

RECORD = MemoryRecord(
    BOATHOUSE.said, created_at=1.7e9, updated_at=1.71e9, kind="place", tags=("keys",), details={"trust": 0.75}
)
MAX_PAGES = 1000
"""Pages of an export after which a check takes it for endless."""


class MovingChecks(Suite):
    """`export_memories` and `import_memory`, which no turn calls."""

    def test_what_it_keeps_is_exported(self) -> None:
        session = self.started("export_memories", "prefetch")
        self.observable(TORTOISE, session)
        if not self.eventually(lambda: any(TORTOISE.marker in one.text for one in self.exported(session))):
            self.fault(
                f"{TORTOISE.said!r} is recalled, and export_memories() does not return it",
                "return every memory of the session's user, page after page",
            )

    def test_an_imported_memory_is_exported_word_for_word(self) -> None:
        session = self._imported()
        if not self.eventually(lambda: self._copies(session) > 0):
            self.fault(
                "export_memories() does not return the text that import_memory() took",
                "store record.text as it is, with no model that rewrites it",
            )

    def test_an_imported_memory_that_comes_twice_is_kept_once(self) -> None:
        session = self._imported()
        if not self.eventually(lambda: self._copies(session) > 0):
            self.not_run("an imported memory is not exported")
        self.run.need("import_memory", record=RECORD, session=session)
        if self._copies(session) > 1:
            self.fault(
                "the same record came twice and is kept twice",
                "look for record.key, or for the text, before you store: a move that was killed begins again",
            )

    def test_users_do_not_export_each_other(self) -> None:
        if not self.isolates_users:
            self.not_claimed("isolates_users is not set: one memory a home")
        session = self._imported()
        if not self.eventually(lambda: self._copies(session) > 0):
            self.not_run("an imported memory is not exported")
        bob = self.run.ready(self.run.session("of-bob", platform="telegram", user_id="bob"))
        if self._copies(bob):
            self.fault(
                "export_memories() returns a memory of another user", "return those of session.owner alone"
            )

    # ------------------------------------------------------------------ private

    def exported(self, session: Session) -> list[MemoryRecord]:
        """Return all records of the session's user."""
        records: list[MemoryRecord] = []
        cursor = ""
        for _ in range(MAX_PAGES):
            page = self.run.need("export_memories", cursor=cursor, session=session)
            records += page.records
            if not page.cursor:
                return records
            cursor = page.cursor
        return self.fault(
            f"export_memories() gives more than {MAX_PAGES} pages", 'end with a page whose cursor is ""'
        )

    def _imported(self) -> Session:
        session = self.started("export_memories", "import_memory")
        self.run.need("import_memory", record=RECORD, session=session)
        return session

    def _copies(self, session: Session) -> int:
        return sum(record.text == RECORD.text for record in self.exported(session))
