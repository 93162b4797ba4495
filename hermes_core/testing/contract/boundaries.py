"""Where a session ends, is compressed, or goes on under another id."""

from __future__ import annotations

import uuid

from hermes_core import Session
from hermes_core.testing.contract.run import BOATHOUSE, TORTOISE, messages_of
from hermes_core.testing.contract.suite import Suite

REASONS = ("new", "reset", "resume", "branch", "rewind", "compression")


class Boundaries(Suite):
    """`on_pre_compress`, `on_session_end`, `on_session_switch`."""

    def test_a_compression_is_answered_with_text(self) -> None:
        session = self.started("on_pre_compress")
        messages = messages_of([TORTOISE.said, BOATHOUSE.said])
        outcome = self.run.ask("on_pre_compress", messages=messages, compression_count=0, session=session)
        if outcome.status == "failed":
            self.fault(f"on_pre_compress: {outcome.error}", 'return a str, "" or None for nothing')

    def test_a_compression_of_nothing_is_answered(self) -> None:
        session = self.started("on_pre_compress")
        messages = messages_of([TORTOISE.said])
        self.run.need("on_pre_compress", messages=messages, compression_count=0, session=session)
        outcome = self.run.ask("on_pre_compress", messages=(), compression_count=1, session=session)
        if outcome.status == "failed":
            self.fault(f"on_pre_compress without messages: {outcome.error}", 'return ""')

    def test_the_end_of_a_session_is_taken(self) -> None:
        session = self.started("on_session_end")
        self.run.end(session, [TORTOISE.said])
        trouble = self.run.delivered()
        if "() failed: " in trouble:
            self.fault(trouble, "raise only when the backend can't take it now; the end comes again")

    def test_the_end_of_an_empty_session_is_taken(self) -> None:
        session = self.started("on_session_end")
        self.run.store(TORTOISE, session, "on_session_end")
        empty = self.run.ready(self.run.session("empty"))
        self.run.end(empty, [])
        trouble = self.run.delivered()
        if "() failed: " in trouble:
            self.fault(f"a session without messages: {trouble}", "do nothing when reader.messages() is empty")

    def test_an_end_that_comes_twice_is_kept_once(self) -> None:
        session = self.started("on_session_end", "prefetch")
        if not self.learned(TORTOISE, session, "on_session_end"):
            self.not_claimed("nothing that on_session_end() was given is recalled word for word")
        times = self.run.recalled(TORTOISE, session)
        self.run.store(TORTOISE, session, "on_session_end")
        self.settled(self.run.ready(self.run.session("other")), "on_session_end")
        if not self.eventually(lambda: self.run.recalled(TORTOISE, session) == times):
            self.fault(
                "an end that came twice is recalled twice",
                "keep what a session taught under session.id, and replace it when it comes again",
            )

    def test_every_switch_is_taken(self) -> None:
        session = self.started("on_session_switch")
        for reason in REASONS:
            new = session if reason == "rewind" else self.run.session(uuid.uuid4().hex, parent_id=session.id)
            self.run.switch(session, new, reason, reset=reason in ("new", "reset"))
            trouble = self.run.delivered()
            if "() failed: " in trouble:
                self.fault(
                    f"a switch for {reason!r}: {trouble}", "take every reason, also those of later versions"
                )
            session = self.run.ready(new)

    def test_it_goes_on_after_a_switch(self) -> None:
        session = self.started("on_session_switch", "prefetch")
        way = self.observable(TORTOISE, session)
        new = self._switched(session)
        if not self.learned(BOATHOUSE, new, way):
            self.fault(
                "what is stored after a compression is not recalled",
                "take the session from each call; the old id is over",
            )

    def test_a_switch_keeps_what_was_known(self) -> None:
        session = self.started("on_session_switch", "prefetch")
        self.observable(TORTOISE, session)
        lasts = TORTOISE.marker in self.run.recall(TORTOISE.question, self.run.session("other")).render()
        for reason in ("compression", "reset") if lasts else ("compression",):
            session = self._switched(session, reason)
            if not self.eventually(lambda: self.run.recalled(TORTOISE, session) > 0):  # noqa: B023  called at once
                self.fault(
                    f"what was stored before a switch for {reason!r} is not recalled after it",
                    "move cached state from switch.old to switch.new, and forget nothing but rewound turns",
                )

    def test_a_turn_that_was_taken_back_is_forgotten(self) -> None:
        if self.foreign:
            self.not_claimed("turns have no ids in the contract of Hermes Agent")
        session = self.started("sync_turn", "on_session_switch", "prefetch")
        self.run.store(TORTOISE, session, "sync_turn", turn_id="turn-1")
        self.run.store(BOATHOUSE, session, "sync_turn", turn_id="turn-2")
        if not self.eventually(lambda: self.run.recalled(BOATHOUSE, session) > 0):
            self.not_claimed("turns are not recalled word for word")
        self.run.switch(session, session, "rewind", ["turn-2"])
        self.need_delivered()
        if not self.eventually(lambda: not self.run.recalled(BOATHOUSE, session)):
            self.fault(
                "a turn that the person took back is still recalled",
                "delete what was stored under the ids in switch.rewound_turns",
            )
        if not self.run.recalled(TORTOISE, session):
            self.fault(
                "a rewind of the last turn also loses the turn before",
                "delete the rewound turns and no others",
            )

    # ------------------------------------------------------------------ private

    def _switched(self, session: Session, reason: str = "compression") -> Session:
        new = self.run.session(f"{session.id}-2", parent_id=session.id)
        self.run.switch(session, new, reason, reset=reason == "reset")
        self.need_delivered()
        return self.run.ready(new)
