"""Actions on other users of a home: forget one of them."""

from __future__ import annotations

from hermes_core.actions.notes import deliver
from hermes_core.forget import ForgetReport, forget_user
from hermes_core.memory import Memory
from hermes_core.safety.terminal import counted


def forget_person(memory: Memory, user: str) -> tuple[ForgetReport, str]:
    """Delete all that the stores hold of a user, and let the provider forget it too.

    Return the report, and a sentence if the provider has not taken it in time, else "".
    """
    memory.manager.initialize_all(memory.local_session)
    report = forget_user(memory, user)
    return report, deliver(memory, memory.local_session)


def report_counts(report: ForgetReport) -> str:
    """Return what a deletion counts: sessions, messages and notes."""
    return ", ".join(
        (
            counted(report.sessions, "session"),
            counted(report.messages, "message"),
            counted(report.notes, "note"),
        )
    )


def report_sentences(report: ForgetReport) -> list[str]:
    """Return what a deletion did, and what this program can't delete."""
    counts = report_counts(report)
    sentences = [
        f"{counts} are deleted" if report.erased else f"{report.user} is not erased; removed so far: {counts}"
    ]
    if report.provider:
        request = f"{report.provider} was asked to forget {counted(report.turns, 'turn')}"
        wait = (
            f"; {counted(report.waiting, 'write')} still wait: hermes-memory outbox list"
            if report.waiting
            else ""
        )
        sentences.append(request + wait)
    return [*sentences, *(f"not deleted: {sentence}" for sentence in report.remaining)]
