"""Checks of writes: turns, changes of the notes, and results of subagents."""

from __future__ import annotations

import dataclasses
import uuid

from hermes_core import Delegation, MemoryWrite, Session
from hermes_memory_testing.contract.inputs import BAD, HOSTILE
from hermes_memory_testing.contract.suite import (
    BOATHOUSE,
    REHEARSAL,
    TORTOISE,
    Suite,
    completed_turn,
    messages_with_tool,
)

REPEAT = (
    "a write comes a second time after a crash: store it under its id, or ask for the id before you write"
)


class WritesChecks(Suite):
    """`sync_turn`, `on_memory_write`, `on_delegation`, delivered from the outbox at least once."""

    def test_a_turn_is_taken(self) -> None:
        session = self.started("sync_turn")
        self.run.turn(TORTOISE, session)
        trouble = self.run.delivered()
        if "() failed: " in trouble:
            self.fault(trouble, "raise only when the backend can't take the turn now; it comes again")
        if not trouble and not self.kept(TORTOISE) and not self._comes_back(session):
            self.fault(
                "sync_turn() returns, and the backend does not have the turn",
                "return only when the backend has it; raise BackendUnavailable until then",
            )

    def test_an_added_entry_is_taken(self) -> None:
        session = self.started("on_memory_write")
        self.run.write(session, content=TORTOISE.said)
        self._delivered("add")

    def test_a_replaced_entry_is_taken(self) -> None:
        session = self._with_entry()
        self._replace(session)
        self._delivered("replace")

    def test_a_removed_entry_is_taken(self) -> None:
        session = self._with_entry()
        self._remove(session)
        self._delivered("remove")

    def test_a_change_of_what_it_does_not_know_is_taken(self) -> None:
        session = self._with_entry()
        self._change_unknown(session, "user")
        self._delivered("replace or remove of an unknown entry")

    def test_a_replaced_entry_is_recalled_no_more(self) -> None:
        session = self._with_recalled_entry()
        self._replace(session)
        self.need_delivered()
        if not self.eventually(lambda: not self.run.recalled(TORTOISE, session)):
            self.fault(
                f"{TORTOISE.said!r} was replaced and is still recalled",
                "find the entry by write.previous, or by write.old_text, and change it",
            )

    def test_a_removed_entry_is_recalled_no_more(self) -> None:
        session = self._with_recalled_entry()
        self._remove(session)
        self.need_delivered()
        if not self.eventually(lambda: not self.run.recalled(TORTOISE, session)):
            self.fault(
                f"{TORTOISE.said!r} was removed and is still recalled",
                "find the entry by write.previous, or by write.old_text, and delete it; a backend that can't is a reason "
                "to override this check: self.not_claimed('why')",
            )

    def test_other_entries_stay(self) -> None:
        session = self._with_recalled_entry()
        if not self.learned(REHEARSAL, session, "on_memory_write"):
            self.not_run("a second entry is not recalled")
        for what, change in (
            ("another entry was removed", self._remove),
            ("an entry that it never had was replaced and removed", self._change_unknown),
        ):
            change(session)
            self.need_delivered()
            if not self.eventually(lambda: self.run.recalled(REHEARSAL, session) > 0):
                self.fault(
                    f"{REHEARSAL.said!r} is recalled no more after {what}",
                    "change the one entry that is write.previous, or has write.old_text in it, else none",
                )

    def test_an_entry_that_is_not_kept_locally_is_recalled(self) -> None:
        session, target = self._suppressing()
        if not self._kept_instead(session, target):
            self.fault(
                "it suppresses the local write and does not recall what it was given instead",
                "store writes with performed=False too, or declare no suppresses_local_writes",
            )

    def test_an_entry_that_is_not_kept_locally_is_removed(self) -> None:
        session, target = self._suppressing()
        if not self._kept_instead(session, target):
            self.not_run("such entries are not recalled")
        self._remove(session)
        self.need_delivered()
        if not self.eventually(lambda: not self.run.recalled(TORTOISE, session)):
            self.not_run("an entry that was removed is recalled, wherever it was kept")
        words = "boathouse key hangs"
        self.run.write(session, action="remove", target=target, old_text=words, performed=False)
        self.need_delivered()
        if not self.eventually(lambda: not self.run.recalled(BOATHOUSE, session)):
            self.fault(
                "it suppresses the local write, and an entry that was removed is still recalled",
                "find it by write.old_text: write.previous is empty, for nobody else has the entry",
            )

    def test_a_turn_that_comes_twice_is_kept_once(self) -> None:
        session = self.started("sync_turn")
        turn = completed_turn(TORTOISE.said)
        self.run.need("sync_turn", turn=turn, session=session)
        if self.exactly_once and self.received() is not None:
            self.run.need("sync_turn", turn=turn, session=session)
            if (self.received() or ()).count(TORTOISE.said) > 1:
                self.fault("a turn that came twice with one id is there twice", REPEAT)
            return
        if not self.run.claims("prefetch"):
            self.not_claimed("prefetch()")
        times = self._seen_or_unclaimed(session, "sync_turn")
        self.run.need("sync_turn", turn=turn, session=session)
        self.settled(session, "sync_turn")
        if not self.eventually(lambda: self.run.recalled(TORTOISE, session) <= times):
            self.fault("a turn that came twice with one id is recalled twice", REPEAT)

    def test_a_memory_write_that_comes_twice_is_kept_once(self) -> None:
        session = self.started("on_memory_write", "prefetch")
        write = MemoryWrite(uuid.uuid4().hex, "add", "memory", TORTOISE.said)
        self.run.need("on_memory_write", write=write, session=session)
        times = self._seen_or_unclaimed(session, "on_memory_write")
        self.run.need("on_memory_write", write=write, session=session)
        self.settled(session, "on_memory_write")
        if not self.eventually(lambda: self.run.recalled(TORTOISE, session) <= times):
            self.fault("an entry that came twice with one id is recalled twice", REPEAT)

    def test_a_turn_leaves_the_one_before(self) -> None:
        session = self.started("sync_turn", "prefetch")
        if not self.learned(TORTOISE, session, "sync_turn"):
            self.not_claimed("nothing that sync_turn() was given is recalled word for word")
        self.settled(session, "sync_turn")
        if not self.eventually(lambda: self.run.recalled(TORTOISE, session) > 0):
            self.fault(
                "of two turns of a session the second takes the place of the first",
                "let turn.id be the key: turn.number is for display, and the session has many turns",
            )

    def test_a_turn_of_any_messages_is_taken(self) -> None:
        session = self.started("sync_turn")
        self.run.need("sync_turn", turn=completed_turn(TORTOISE.said), session=session)
        for what, messages in (("a tool call", messages_with_tool()), ("no messages", ())):
            turn = dataclasses.replace(completed_turn(BOATHOUSE.said), messages=messages)
            outcome = self.run.ask("sync_turn", turn=turn, session=session)
            if outcome.status == "failed":
                self.fault(
                    f"sync_turn fails for a turn with {what}: {outcome.error}",
                    "go by turn.user and turn.assistant; turn.messages may be of any roles, and none",
                )

    def test_a_delegation_is_taken(self) -> None:
        session = self.started("on_delegation")
        task = Delegation(uuid.uuid4().hex, "Find the tortoise.", TORTOISE.said, "child-1")
        self.run.manager.on_delegation(task, session)
        trouble = self.run.delivered()
        if "() failed: " in trouble:
            self.fault(trouble, "raise only when the backend can't take it now; it comes again")

    def test_hostile_turns_are_taken(self) -> None:
        session = self.started("sync_turn")
        self.run.need("sync_turn", turn=completed_turn(TORTOISE.said), session=session)
        for what, text in HOSTILE.items():
            outcome = self.run.ask("sync_turn", turn=completed_turn(text), session=session)
            if outcome.status in BAD:
                self.fault(
                    f"sync_turn fails for a message with {what}: {outcome.error}",
                    "clean or cut it to what the backend takes (kit.storable, kit.clip): the row would block its session",
                )
        self.run.need("sync_turn", turn=completed_turn(BOATHOUSE.said), session=session)

    def test_hostile_memory_writes_are_taken(self) -> None:
        session = self._with_entry()
        for what, text in HOSTILE.items():
            write = MemoryWrite(uuid.uuid4().hex, "add", "memory", text)
            outcome = self.run.ask("on_memory_write", write=write, session=session)
            if outcome.status in BAD and text.strip():
                self.fault(
                    f"on_memory_write fails for an entry with {what}: {outcome.error}",
                    "clean or cut it to what the backend takes (kit.storable, kit.clip): the row would block its session",
                )

    # ------------------------------------------------------------------ private

    def _with_entry(self) -> Session:
        session = self.started("on_memory_write")
        self.run.store(TORTOISE, session, "on_memory_write")
        return session

    def _with_recalled_entry(self) -> Session:
        session = self.started("on_memory_write", "prefetch")
        if not self.learned(TORTOISE, session, "on_memory_write"):
            self.not_claimed("entries are not recalled word for word")
        return session

    def _replace(self, session: Session) -> None:
        self.run.write(
            session,
            action="replace",
            content=BOATHOUSE.said,
            old_text="tortoise is called",
            previous=TORTOISE.said,
        )

    def _remove(self, session: Session) -> None:
        self.run.write(session, action="remove", old_text="tortoise is called", previous=TORTOISE.said)

    def _change_unknown(self, session: Session, target: str = "memory") -> None:
        unknown = "An entry from before the provider was enabled."
        for action, content in (("replace", TORTOISE.said), ("remove", "")):
            which = {"action": action, "target": target, "old_text": unknown[:20], "previous": unknown}
            self.run.write(session, content=content, **which)

    def _suppressing(self) -> tuple[Session, str]:
        session = self.started("on_memory_write", "prefetch")
        targets = [t for t in ("memory", "user") if self.run.manager.suppresses_local_writes(t)]
        if not targets:
            self.not_claimed("local writes are not suppressed")
        if not self.learned(TORTOISE, session, "on_memory_write"):
            self.not_run("entries are not recalled at all")
        return session, targets[0]

    def _kept_instead(self, session: Session, target: str) -> bool:
        """Give it an entry that it keeps in place of the file, and say whether it is recalled."""
        self.run.write(session, target=target, content=BOATHOUSE.said, performed=False)
        self.need_delivered()
        return self.eventually(lambda: self.run.recalled(BOATHOUSE, session) > 0)

    def _delivered(self, action: str) -> None:
        trouble = self.run.delivered()
        if "() failed: " in trouble:
            self.fault(
                f"{action}: {trouble}", "take every action of both targets, also for entries you never saw"
            )

    def _comes_back(self, session: Session) -> bool:
        if not self.run.claims("prefetch"):
            return False
        return self.eventually(lambda: self.run.recalled(TORTOISE, session) > 0)

    def _seen_or_unclaimed(self, session: Session, way: str) -> int:
        if not self._comes_back(session):
            self.not_claimed(f"nothing that {way}() was given is recalled word for word")
        return self.run.recalled(TORTOISE, session)
