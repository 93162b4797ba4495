"""Checks that a provider forgets a person, and nobody else."""

from __future__ import annotations

from pathlib import Path

from hermes_core import Session
from hermes_core.contract.values import Erasure
from hermes_memory_testing.contract.suite import BOATHOUSE, REHEARSAL, TORTOISE, Suite
from hermes_memory_testing.guards import files_below


class ForgettingChecks(Suite):
    """`forget_user`, which `hermes-memory forget` calls for each session of the user."""

    def test_a_forgotten_user_is_not_recalled(self) -> None:
        ada = self._ada()
        erasure = self._forget(ada)
        if not erasure.remaining and not self.eventually(lambda: not self.run.recalled(TORTOISE, ada)):
            self.fault(
                "forget_user() leaves nothing, as it says, and what the user said is recalled",
                "delete all that was stored for session.owner, or say in Erasure.remaining what stays",
            )

    def test_a_forgotten_user_is_in_no_file_of_the_home(self) -> None:
        ada = self._ada()
        erasure = self._forget(ada)
        self.run.close()
        # Files of the host itself, such as the outbox, are looked at by `hermes-memory forget`.
        files = map(Path, files_below(self.run.home.path))
        own = (path for path in files if not path.name.startswith("outbox.db"))
        if not erasure.remaining:
            for path in own:
                if TORTOISE.marker.encode() in path.read_bytes():
                    self.fault(
                        f"{path.name!r} still holds what a forgotten user said",
                        "delete it from every file, also from free pages: secure_delete, or VACUUM",
                    )

    def test_others_keep_their_memory_when_a_user_is_forgotten(self) -> None:
        ada = self._ada()
        bob = self.run.ready(self.run.session("of-bob", platform="telegram", user_id="bob"))
        at_home = self.run.ready(self.run.session("at-home"))
        for fact, session in ((BOATHOUSE, bob), (REHEARSAL, at_home)):
            self.run.store(fact, session)
            if not self.eventually(lambda fact=fact, session=session: self.run.recalled(fact, session) > 0):  # type: ignore[misc]
                self.not_run("what another user said is not recalled before either")
        self._forget(ada)
        for fact, session in ((BOATHOUSE, bob), (REHEARSAL, at_home)):
            if not self.eventually(lambda fact=fact, session=session: self.run.recalled(fact, session) > 0):  # type: ignore[misc]
                self.fault(
                    "forget_user() deletes what somebody else said", "delete what is of session.owner alone"
                )

    def test_a_user_is_forgotten_twice_without_a_fault(self) -> None:
        ada = self._ada()
        self._forget(ada)
        outcome = self.run.ask("forget_user", user=ada.owner, session=ada)
        if not outcome.ok:
            self.fault(
                f"the second forget_user() {outcome.status}: {outcome.error}",
                "return Erasure() if nothing is there: it is called for each session, and again after a failure",
            )

    # ------------------------------------------------------------------ private

    def _ada(self) -> Session:
        """A user with a memory of their own, who is recalled."""
        if not self.isolates_users:
            self.not_claimed("isolates_users is not set: one memory a home")
        ada = self.started("forget_user", platform="telegram", user_id="ada")
        self.observable(TORTOISE, ada)
        return ada

    def _forget(self, session: Session) -> Erasure:
        erasure: Erasure = self.run.need("forget_user", user=session.owner, session=session)
        return erasure
