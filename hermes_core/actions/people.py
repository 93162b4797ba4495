"""Actions on other users of a home: forget one of them."""

from __future__ import annotations

import time

from msgspec import structs

from hermes_core.actions.leftovers import Fragments, look, texts_of
from hermes_core.contract.hooks import POLICIES
from hermes_core.forget import ForgetReport, forget_user, provider_erasures, speaker_of
from hermes_core.memory import Memory
from hermes_core.safety.terminal import counted
from hermes_core.sessions.maintenance import vacuum

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
    fragments, speaker = Fragments(texts_of(memory, user)), speaker_of(memory, user)
    memory.manager.initialize_all(memory.local_session, min(timeout, START_TIMEOUT_S) or None)
    report = forget_user(memory, user)
    if timeout and memory.internals.selection.name:
        memory.flush(until - time.monotonic())
        report = structs.replace(
            report, providers=provider_erasures(memory, user), waiting=memory.manager.outbox.depth
        )
        if not memory.sessions.database.shared:
            vacuum(
                memory.sessions
            )  # the rows of the outbox that were delivered meanwhile had texts of the user
    report = structs.replace(report, places=look(memory, fragments, speaker, ask=bool(timeout)))
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
        f"deleted: {counts}" if report.erased else f"{report.user} is not erased; removed so far: {counts}"
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
    for left in report.places:
        if left.error:
            sentences.append(f"{left.place}: {left.error}")
        elif left.hits:
            whose = "which it should not" if left.promised else "which this command does not delete"
            sentences.append(f"{left.place} holds {counted(left.hits, 'text')} of {report.user}, {whose}")
    if clean := [left.place for left in report.places if not (left.hits or left.error)]:
        sentences.append(f"no text of {report.user} was found in {', '.join(clean)}")
    return [*sentences, *(f"not deleted: {sentence}" for sentence in report.remaining)]
