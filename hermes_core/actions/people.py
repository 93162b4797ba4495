"""Actions on other users of a home: forget one of them."""

from __future__ import annotations

import time

from msgspec import structs

from hermes_core.contract.hooks import POLICIES
from hermes_core.forget import ForgetReport, forget_user, provider_erasures
from hermes_core.memory import Memory
from hermes_core.safety.terminal import counted

FORGET_TIMEOUT_S, START_TIMEOUT_S = (POLICIES[hook].deadline for hook in ("forget_user", "initialize"))


def forget_person(
    memory: Memory, user: str, *, timeout: float = FORGET_TIMEOUT_S
) -> tuple[ForgetReport, str]:
    """Delete all that the stores hold of a user, and let the providers forget the user too.

    Return the report, and a sentence if a provider has not done it in time, else "".

    Args:
        timeout: Seconds to wait for the providers; 0 leaves the request in the outbox.
    """
    until = time.monotonic() + timeout
    memory.manager.initialize_all(memory.local_session, min(timeout, START_TIMEOUT_S) or None)
    report = forget_user(memory, user)
    if timeout and memory.selected:
        memory.flush(until - time.monotonic())
        report = structs.replace(
            report, providers=provider_erasures(memory, user), waiting=memory.manager.outbox.depth
        )
    waiting = [one.provider for one in report.providers if one.state == "waiting"]
    late = f"{' and '.join(map(repr, waiting))} has not forgotten {user} yet; the request waits in the outbox"
    return report, late if waiting else ""


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
    for one in report.providers:
        if one.state == "unable":
            sentences.append(f"nothing was deleted at {one.provider}: {one.remaining[0]}")
            continue
        if one.deleted:
            sentences.append(f"{one.provider} has deleted {'; '.join(one.deleted)}")
        elif one.state == "forgotten":
            sentences.append(f"{one.provider} has nothing of {report.user}")
        if one.state == "waiting":
            wait = f"{counted(report.waiting, 'write')} still wait: hermes-memory outbox list"
            sentences.append(f"{one.provider} was asked to forget {report.user}; {wait}")
        sentences += (f"not deleted at {one.provider}: {sentence}" for sentence in one.remaining)
    return [*sentences, *(f"not deleted: {sentence}" for sentence in report.remaining)]
