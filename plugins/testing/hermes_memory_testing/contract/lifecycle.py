"""The life of a provider: it is accepted, starts, may be started and ended again, and leaves nothing behind."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from hermes_core import HermesHome, Session
from hermes_core.contract.provider import contract_faults
from hermes_memory_testing.contract.suite import (
    BOATHOUSE,
    LATE_START,
    NO_ANSWER,
    REHEARSAL,
    TORTOISE,
    WAYS,
    Fact,
    Run,
    Suite,
    messages_of,
)
from hermes_memory_testing.guards import (
    Before,
    Left,
    closed_network,
    files_below,
    sees_descriptors,
    untouched_since,
)

FACTS = TORTOISE, BOATHOUSE, REHEARSAL


class LifecycleChecks(Suite):
    """From the first look at a provider to the end of the process."""

    def test_it_keeps_to_the_forms_of_the_contract(self) -> None:
        provider = self.run.provider
        if provider is None:
            self.fault(
                f"it can't be made: {self.run.health.reason}",
                "return a provider, whose __init__ opens and imports nothing",
            )
        faults = contract_faults(provider)
        if faults:
            self.fault("; ".join(faults), "write it as the message says")
        if self.name not in ("", provider.name):
            self.fault(
                f"the suite calls it {self.name!r}, its own name is {provider.name!r}",
                "write one name: settings go into the file that it gives",
            )

    def test_it_can_run_here(self) -> None:
        run = self.run
        if contract_faults(run.provider):
            self.not_run("its form is not accepted")
        if NO_ANSWER in run.health.reason:
            self.not_run(run.health.reason)
        if not run.accepted:
            self.fault(
                f"it is {run.health.state}: {run.health.reason}",
                "give the suite what it needs: settings, secrets or a backend",
            )

    def test_it_is_looked_at_without_network_or_child_process(self) -> None:
        with closed_network() as tried:
            self.open()
        if tried:
            self.fault(
                f"while it was made and asked what it offers: {tried[0]}",
                "look at settings and packages only in __init__, is_available and get_tool_schemas; connect in initialize",
            )

    def test_it_starts(self) -> None:
        run = self.run
        if not run.accepted:
            self.not_run("it is not accepted")
        trouble = run.start(run.session())
        if LATE_START in trouble:
            self.not_run(trouble)
        if trouble:
            self.fault(
                trouble, "let initialize return once what it needs is open, and raise only when it can't"
            )

    def test_it_may_be_started_again(self) -> None:
        session = self.started("initialize")
        outcome = self.run.ask("initialize", session=session)
        if not outcome.ok:
            self.fault(
                f"a second initialize: {outcome.error}",
                "close what the first opened, or keep it; the manager starts a provider again after a failure",
            )

    def test_it_ends_without_an_error(self) -> None:
        self.started("shutdown")
        outcome = self.run.ask("shutdown")
        if outcome.status == "failed":
            self.fault(f"shutdown: {outcome.error}", "close what was opened and raise nothing")

    def test_it_may_be_ended_again(self) -> None:
        self.started("shutdown")
        self.run.need("shutdown")
        outcome = self.run.ask("shutdown")
        if not outcome.ok:
            self.fault(f"a second shutdown: {outcome.error}", "do nothing when everything is closed")

    def test_it_may_be_ended_after_a_start_that_failed(self) -> None:
        """Shut down after `initialize` raised in its first line, and after it met an outage."""
        self.started("shutdown")
        self.run.need("shutdown")
        unstarted, cut_off = self.open(), self.open()
        ends = [unstarted.ask("shutdown")]
        with self.outage() or nullcontext():
            if cut_off.start(cut_off.session()):
                ends.append(cut_off.ask("shutdown"))
        for outcome in ends:
            if outcome.status == "failed":
                self.fault(
                    f"shutdown after an initialize that raised: {outcome.error}",
                    "set to None in __init__ what it closes, and close what is there; the manager always calls it",
                )

    def test_a_restart_finds_what_was_stored(self) -> None:
        session = self.started("prefetch")
        self.observable(TORTOISE, session)
        self.run.close()
        later = self.open()
        later.ready(session)
        if not self.eventually(lambda: later.recalled(TORTOISE, session) > 0):
            self.fault(
                "after a restart nothing is recalled of what was stored before",
                "keep what you are given in the backend or below session.home before the hook returns",
            )

    def test_what_was_taken_outlives_a_killed_process(self) -> None:
        session = self.started("prefetch")
        told = {way: fact for way, fact in zip(WAYS, FACTS, strict=True) if self._is_heard(way)}
        if not told:
            self.not_claimed("no hook after which something is recalled word for word")
        for way, fact in told.items():
            self.run.store(fact, session, way)
        survivor = self.open(self._copied_home())
        survivor.ready(survivor.session())
        if self.eventually(lambda: not self._missing(told, survivor)):
            return
        missing = self._missing(told, survivor)
        self.run.close()
        restarted = self.open()
        restarted.ready(session)
        if lost := missing - self._missing(told, restarted):
            self.fault(
                f"what {min(lost)}() had taken is lost when the process dies before shutdown",
                "commit before the hook returns; the manager deletes its own copy then",
            )
        if len(missing) == len(told):
            self.not_run("a restart in peace loses it as well")

    # ----------------------------------------------------------------- clean-up

    def test_no_thread_stays_behind(self) -> None:
        left = self._left_after_a_life()
        if left.threads:
            self.fault(f"threads that go on: {_listed(left.threads)}", "end and join them in shutdown")

    def test_no_file_stays_open(self) -> None:
        self._needs_descriptors()
        left = self._left_after_a_life()
        if left.files:
            self.fault(f"open files: {_listed(left.files)}", "close them in shutdown")

    def test_no_socket_stays_open(self) -> None:
        self._needs_descriptors()
        left = self._left_after_a_life()
        if left.sockets:
            self.fault(f"open sockets: {_listed(left.sockets)}", "close clients and servers in shutdown")

    def test_the_process_is_left_as_it_was(self) -> None:
        left = self._left_after_a_life()
        if left.process:
            self.fault(
                f"changed for the whole process: {_listed(left.process)}",
                "keep it to yourself: environment, working folder, locale, umask, root logger, sys.path and hooks belong to the host",
            )

    def test_nothing_is_printed(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._one_life(self.open())
        lines = capfd.readouterr().out.split("\n")
        if printed := next(filter(str.strip, lines), ""):
            self.fault(
                f"it prints {printed[:80]!r} to standard output",
                "use logging: programs and MCP clients read what the host prints",
            )

    def test_files_are_kept_in_the_home(self) -> None:
        self._one_life(self.open())
        strays = files_below(self.person, self.folder) - self._declared()
        if strays:
            self.fault(
                f"files outside the home: {_listed(sorted(strays))}",
                "put them below session.home, or let backup_paths() name them",
            )

    # ------------------------------------------------------------------ private

    def _is_heard(self, way: str) -> bool:
        return self.run.claims(way) and (self.recalled_from is None or way in self.recalled_from)

    def _missing(self, told: dict[str, Fact], run: Run) -> set[str]:
        """The ways by which these facts were told and `run` recalls nothing of them."""
        return {way for way, fact in told.items() if not run.recalled(fact, run.session())}

    def _needs_descriptors(self) -> None:
        if not sees_descriptors():
            self.not_claimed("open files can't be seen on this system")

    def _left_after_a_life(self) -> Left:
        folders = (self.home.path, self.person, self.folder)
        before = Before(folders, state=untouched_since(self._first))
        self._one_life(self.open())
        return before.left(self.patience)

    def _one_life(self, run: Run) -> None:
        session = run.ready(run.session())
        run.manager.build_system_prompt(session)
        run.store(BOATHOUSE, session)
        if run.claims("prefetch"):
            run.recall(BOATHOUSE.question, session)
        run.close()

    def _declared(self) -> set[str]:
        """Return the files that `backup_paths` names, and all files below the folders that it names."""
        run = self.open()
        paths = run.need("backup_paths") if run.claims("backup_paths") else ()
        return {name for name in files_below(self.person, self.folder) for p in paths if name.startswith(p)}

    def _copied_home(self) -> HermesHome:
        """The home as the disk of a machine that lost its power holds it."""
        copy = self.home.path.with_name("copy")
        shutil.copytree(self.home.path, copy)
        return HermesHome(copy)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


REASONS = ("new", "reset", "resume", "branch", "rewind", "compression")


class BoundariesChecks(Suite):
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
