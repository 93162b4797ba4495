"""Checks that data of one session, one user or one home never shows in another, also while several are in use."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hermes_core import Capabilities, HermesHome, Query, Session, ToolCall
from hermes_memory_testing.contract.inputs import IDENTITIES, samples
from hermes_memory_testing.contract.suite import BOATHOUSE, REHEARSAL, TORTOISE, Fact, Suite, completed_turn
from hermes_memory_testing.guards import files_below

ROUNDS = 15
MOST_AT_ONCE = 8
"""Sessions that ask for each fact at once, however many the provider allows."""

OWNER = "store session.owner with everything, and ask for it in every search and tool"
SHOWN = "recall shows another user what was said"


class IsolationChecks(Suite):
    """Sessions interleaved on one instance, users of one home, homes of one process."""

    def test_interleaved_sessions_get_their_own_recall(self) -> None:
        first = self.started("prefetch")
        second = self.run.ready(self.run.session("other"))
        way = self.observable(TORTOISE, first)
        self.learned(BOATHOUSE, second, way)
        alone = self._asked(BOATHOUSE, second)
        self._warmed(TORTOISE, first)
        among = self._asked(BOATHOUSE, second)
        if BOATHOUSE.marker in alone and BOATHOUSE.marker not in among:
            self.fault(
                "while another session is prepared, a session is given the recall of that other question",
                "keep no result on self: answer from the query and session of the call",
            )

    def test_recall_names_the_session_that_it_comes_from(self) -> None:
        first = self.started("prefetch")
        way = self.observable(TORTOISE, first)
        second = self.run.ready(self.run.session("other"))
        self.learned(BOATHOUSE, second, way)
        for fact, session in ((TORTOISE, first), (BOATHOUSE, second)):
            items = self.run.recall(fact.question, self._third()).items
            named = [item.session_id for item in items if fact.marker in item.text and item.session_id]
            if named and session.id not in named:
                self.fault(
                    f"what session {session.id!r} said is recalled as said in {named[0]!r}",
                    "store the id of the session that comes with the call, not that of initialize",
                )
        if not any(item.session_id for item in self.run.recall(TORTOISE.question, self._third()).items):
            self.not_claimed("recall names no sessions")

    def test_users_do_not_see_each_other(self) -> None:
        if not self.isolates_users:
            self.not_claimed("isolates_users is not set: one memory a home")
        ada = self.started("prefetch", platform="telegram", user_id="ada")
        self.observable(TORTOISE, ada)
        self.run.store(TORTOISE, ada)
        at_home = self.run.ready(self.run.session("at-home"))
        self.run.store(BOATHOUSE, at_home)
        self.eventually(lambda: self.run.recalled(BOATHOUSE, at_home) > 0)
        bob, group = self._strangers()
        for asks, whose, fact in (
            (bob, "what one user said is recalled for another", TORTOISE),
            (group, "what a user said is recalled in a chat that names no user", TORTOISE),
            (group, "what was said at home is recalled in a chat that names no user", BOATHOUSE),
        ):
            if self.run.recalled(fact, asks):
                self.fault(whose, OWNER)

    def test_an_owner_has_the_memory_of_the_home_from_outside(self) -> None:
        if not self.isolates_users:
            self.not_claimed("isolates_users is not set: one memory a home")
        at_home = self.started("prefetch")
        self.observable(TORTOISE, at_home)
        self.run.store(TORTOISE, at_home)
        outside = {"platform": "telegram", "user_id": "mel", "user_name": "Mel", "chat_id": "mel"}
        if self.run.recalled(TORTOISE, self.run.ready(self.run.session("of-a-stranger", **outside))):
            self.not_run(SHOWN)
        owner = self.run.ready(self.run.session("of-the-owner", is_owner=True, **outside))
        if not self.eventually(lambda: self.run.recalled(TORTOISE, owner) > 0):
            self.fault("what was said at home is not recalled for its owner on another platform", OWNER)

    def test_a_switch_of_one_user_shows_others_nothing(self) -> None:
        if not self.isolates_users:
            self.not_claimed("isolates_users is not set: one memory a home")
        ada = self.started("prefetch", "on_session_switch", platform="telegram", user_id="ada")
        self.observable(TORTOISE, ada)
        bob = self._strangers()[0]
        if self.run.recalled(TORTOISE, bob):
            self.not_run(SHOWN)
        self.run.switch(ada, dataclasses.replace(ada, id="next"), "new", reset=True)
        self.need_delivered()
        if self.run.recalled(TORTOISE, bob):
            self.fault(
                "once a user's session was switched, what that user said is recalled for another",
                "keep nothing of switch.new on self: the session that counts comes with each call",
            )

    def test_tools_tell_users_nothing_of_each_other(self) -> None:
        if not self.isolates_users:
            self.not_claimed("isolates_users is not set: one memory a home")
        ada = self.started("get_tool_schemas", "handle_tool_call", platform="telegram", user_id="ada")
        self.run.store(TORTOISE, ada)
        if not self.eventually(
            lambda: any(TORTOISE.marker in said for _, said in self._told(TORTOISE.question, ada))
        ):
            self.not_claimed("no tool tells what was stored")
        for stranger in self._strangers():
            if self.run.claims("prefetch") and self.run.recalled(TORTOISE, stranger):
                self.not_run(SHOWN)
            for tool, answer in self._told(TORTOISE.question, self.run.ready(stranger)):
                if TORTOISE.marker in answer:
                    self.fault(f"{tool} tells session {stranger.id!r} what another user said", OWNER)

    def test_what_two_users_wrote_goes_for_the_one_who_removes_it(self) -> None:
        if not self.isolates_users:
            self.not_claimed("isolates_users is not set: one memory a home")
        ada = self.started("on_memory_write", "prefetch", platform="telegram", user_id="ada")
        if not self.learned(TORTOISE, ada, "on_memory_write"):
            self.not_claimed("entries are not recalled word for word")
        bob = self._strangers()[0]
        if self.run.recalled(TORTOISE, bob):
            self.not_run(SHOWN)
        self.run.store(TORTOISE, bob, "on_memory_write")
        self.run.write(bob, action="remove", old_text="tortoise is called", previous=TORTOISE.said)
        self.need_delivered()
        if not self.eventually(lambda: self.run.recalled(TORTOISE, ada) > 0):
            self.fault(
                "an entry that two users have is gone for both when one removes it",
                "let session.owner be a part of its key",
            )

    def test_homes_do_not_see_each_other(self) -> None:
        session = self.started("prefetch")
        self.observable(TORTOISE, session)
        home = HermesHome(self.home.path.with_name("elsewhere"))
        self.furnish(home, self._settings)
        other = self.open(home)
        if other.recalled(TORTOISE, other.session()):
            self.fault(
                "what was stored in one home is recalled in another",
                "keep everything below session.home and nothing in module or class variables; where both homes have one account, "
                "override this check: self.not_claimed('why')",
            )

    def test_two_processes_keep_what_the_other_stored(self) -> None:
        session = self.started("sync_turn", "prefetch")
        other = self.open()
        if trouble := other.start(session):
            self.not_claimed(f"two processes at once: {trouble}")
        # Past the outbox, out of which either might deliver both.
        self.run.need("sync_turn", turn=completed_turn(TORTOISE.said), session=session)
        if not self.eventually(lambda: self.run.recalled(TORTOISE, session) > 0):
            self.not_claimed("turns are not recalled word for word")
        other.need("sync_turn", turn=completed_turn(BOATHOUSE.said), session=session)
        third = self.open()
        first = self.eventually(lambda: third.recalled(TORTOISE, session) > 0)
        second = self.eventually(lambda: third.recalled(BOATHOUSE, session) > 0)
        if not (first or second):
            self.not_run("no other process finds anything")
        if not (first and second):
            self.fault(
                "of two processes that store, the one loses what the other has stored",
                "read what is there and write in one transaction (kit.Database), and hold no copy of it",
            )

    def test_recall_and_writes_go_on_at_once(self) -> None:
        session = self.started("prefetch", "sync_turn")
        self.run.need("sync_turn", turn=completed_turn(TORTOISE.said), session=session)
        self.run.need("prefetch", query=_query(TORTOISE), session=session)
        failures: list[str] = []
        writer = threading.Thread(target=self._write_on, args=(session, failures))
        writer.start()
        for _ in range(ROUNDS):
            outcome = self.run.ask("prefetch", query=_query(TORTOISE), session=session)
            failures += [f"prefetch: {outcome.error}"] if outcome.status == "failed" else []
            if outcome.status == "late":
                break
        writer.join()
        if failures:
            self.fault(
                f"with recall and writes at the same time, {failures[0]}",
                "guard what both use (kit.Database has a connection a thread), or declare Capabilities(serial=True)",
            )

    def test_sessions_are_read_at_once(self) -> None:
        first = self.started("prefetch")
        capabilities = self._capabilities()
        if capabilities.serial or capabilities.concurrent == 1:
            self.not_claimed("capabilities.concurrent is 1: it reads for one session at a time")
        way = self.observable(TORTOISE, first)
        second = self.run.ready(self.run.session("other"))
        if not self.learned(BOATHOUSE, second, way):
            self.not_run("only the first of two facts is recalled")
        asked = {
            f"{session.id}-{number}": (fact, dataclasses.replace(session, id=f"{session.id}-{number}"))
            for number in range(min(capabilities.concurrent, MOST_AT_ONCE))
            for fact, session in ((TORTOISE, first), (BOATHOUSE, second))
        }
        alone = {fact.marker: self._asked(fact, session) for fact, session in asked.values()}
        failures = self._asked_at_once([*asked.values()], alone)
        if failures:
            self.fault(
                f"while several sessions ask at once, {failures[0]}",
                "keep nothing of a call on self and let each thread have its own connection (kit.Database), or leave "
                "capabilities.concurrent at 1",
            )

    def test_a_preparation_goes_on_beside_recall(self) -> None:
        session = self.started("prefetch", "queue_prefetch")
        capabilities = self._capabilities()
        if capabilities.serial or not capabilities.slow_prefetch:
            self.not_claimed("capabilities.slow_prefetch is False: recall waits for queue_prefetch()")
        way = self.observable(TORTOISE, session)
        if not self.learned(BOATHOUSE, session, way):
            self.not_run("only the first of two facts is recalled")
        alone = {TORTOISE.marker: self._asked(TORTOISE, session)}
        self.run.need("queue_prefetch", query=_query(BOATHOUSE), session=session)
        failures: list[str] = []
        preparing = threading.Thread(target=self._prepare_on, args=(session, failures))
        preparing.start()
        failures += self._asked_at_once([(TORTOISE, session)], alone)
        preparing.join()
        if failures:
            self.fault(
                f"while queue_prefetch() runs beside recall, {failures[0]}",
                "keep nothing of a call on self and let each thread have its own connection (kit.Database), or leave "
                "capabilities.slow_prefetch at False",
            )

    def test_odd_identities_are_borne(self) -> None:
        if trouble := self._turn_in(self.started()):
            self.not_run(trouble)
        for what, fields in IDENTITIES.items():
            session = self.run.session(**fields)
            trouble = self.run.start(session) or self._turn_in(session)
            if trouble:
                self.fault(
                    f"a session with {what} as its id: {trouble}",
                    "use ids as values, never as parts of a path or of a query",
                )
        strays = files_below(self.home.path.parent) - files_below(self.home.path, self.person, self.folder)
        if strays:
            self.fault(f"an id led out of the home: {min(strays)}", "never use an id as a path")

    # ------------------------------------------------------------------ private

    def _capabilities(self) -> Capabilities:
        """Return the capabilities after the start, because they may depend on the settings."""
        capabilities: Capabilities = getattr(self.run.provider, "capabilities", None) or Capabilities()
        return capabilities

    def _strangers(self) -> tuple[Session, Session]:
        """Return sessions of another user, and of a chat that has the first user's id and no user."""
        bob = self.run.session("of-bob", platform="telegram", user_id="bob")
        return bob, self.run.session("of-a-group", platform="telegram", chat_id="ada")

    def _told(self, text: str, session: Session) -> Iterator[tuple[str, str]]:
        """Yield each tool's answer in this session for each of its choices, after the name of the tool."""
        for schema in self.run.manager.get_all_tool_schemas():
            for arguments in samples(schema["parameters"], text):
                call = ToolCall(schema["name"], arguments)
                outcome = self.run.ask("handle_tool_call", call=call, session=session)
                yield schema["name"], str(outcome.value)

    def _third(self) -> Session:
        return self.run.ready(self.run.session("third"))

    def _asked(self, fact: Fact, session: Session) -> str:
        return self.run.recall(fact.question, session).render()

    def _warmed(self, fact: Fact, session: Session) -> None:
        if self.run.claims("queue_prefetch"):
            self.run.ask("queue_prefetch", query=_query(fact), session=session)
        else:
            self._asked(fact, session)

    def _asked_at_once(self, asked: Sequence[tuple[Fact, Session]], alone: Mapping[str, str]) -> list[str]:
        """Ask for recall in each session on a thread of its own, some times. Return what went wrong.

        Args:
            alone: By the marker of each fact, what was recalled for it while nothing else ran.
        """
        failures: list[str] = []

        def ask_on(fact: Fact, session: Session) -> None:
            for _ in range(ROUNDS):
                outcome = self.run.ask("prefetch", query=_query(fact), session=session)
                if outcome.status == "late":
                    return
                if outcome.status == "failed":
                    failures.append(f"prefetch: {outcome.error}")
                elif (
                    outcome.ok
                    and fact.marker in alone[fact.marker]
                    and fact.marker not in outcome.value.render()
                ):
                    failures.append(f"the recall of session {session.id!r} lacks {fact.marker!r}")

        threads = [threading.Thread(target=ask_on, args=pair) for pair in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return failures

    def _prepare_on(self, session: Session, failures: list[str]) -> None:
        for _ in range(ROUNDS):
            outcome = self.run.ask("queue_prefetch", query=_query(BOATHOUSE), session=session)
            if outcome.status == "failed":
                failures.append(f"queue_prefetch: {outcome.error}")
            if outcome.status == "late":
                break

    def _write_on(self, session: Session, failures: list[str]) -> None:
        for number in range(ROUNDS):
            turn = completed_turn(f"{REHEARSAL.said} Rehearsal {number}.")
            outcome = self.run.ask("sync_turn", turn=turn, session=session)
            if outcome.status == "failed":
                failures.append(f"sync_turn: {outcome.error}")
            if outcome.status == "late":
                break

    def _turn_in(self, session: Session) -> str:
        if self.run.claims("sync_turn"):
            outcome = self.run.ask("sync_turn", turn=completed_turn(TORTOISE.said), session=session)
            if not outcome.ok:
                return f"sync_turn {outcome.status}: {outcome.error}"
        if not self.run.claims("prefetch"):
            return ""
        outcome = self.run.ask("prefetch", query=_query(TORTOISE), session=session)
        return "" if outcome.ok else f"prefetch {outcome.status}: {outcome.error}"


def _query(fact: Fact) -> Any:
    return Query(fact.question, now=time.time())
