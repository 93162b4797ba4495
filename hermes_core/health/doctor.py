"""Examination of a whole home with a real write, and repair of what is safe to repair.

Notes are tried in a scratch folder inside `memories/`, and a turn in a session of its own that is deleted again and whose
writes reach no provider. Nothing of the person is touched.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
import uuid
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from hermes_core.config import load_config
from hermes_core.contract.values import ORIGIN_NAMES, Query, Session
from hermes_core.curated.store import Notes
from hermes_core.curated.tool import call_memory_tool
from hermes_core.curated.waiting import waiting_sentence
from hermes_core.errors import ConfigError, MemoryConflict
from hermes_core.health.databases import examine_databases, examine_vectors
from hermes_core.health.files import examine_files
from hermes_core.health.finding import (
    Finding,
    FindingState,
    HealthCheck,
    backend_remedy,
    failed,
    run_check,
    run_checks,
    without_remedy,
)
from hermes_core.health.provider import (
    check_provider,
    examine_hooks,
    examine_outbox,
    selected_health,
    start_providers,
    trial_session,
)
from hermes_core.health.status import SHARED_CHECKS, OpenHome, waiting_status
from hermes_core.home import HermesHome
from hermes_core.loader.extensions import load_extensions, unmet_keys
from hermes_core.loader.parts import HomeParts
from hermes_core.memory import Memory, open_memory
from hermes_core.safety.terminal import counted
from hermes_core.sessions.owners import stored_users
from hermes_core.sessions.session_store import SessionStore


class Examination(Struct, frozen=True):
    """All findings of one run."""

    home: str
    findings: tuple[Finding, ...]

    @property
    def works(self) -> bool:
        """True if everything that is configured works."""
        return not any(finding.failed for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data."""
        return {
            "home": self.home,
            "works": self.works,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def examine(home: HermesHome, *, fix: bool = False) -> Examination:
    """Examine everything and try it.

    Args:
        fix: Repair what is safe to repair before memory is tried.
    """
    closed = [
        *run_check("files", lambda: examine_files(home)),
        *run_check("databases", lambda: examine_databases(home)),
    ]
    if fix:
        closed = [finding.repaired() if finding.safe_to_fix else finding for finding in closed]
    findings = [*run_check("config.yaml", lambda: _examine_config(home)), *closed]
    errors = {finding.detail for finding in findings if finding.failed}
    opened = run_check("memory", lambda: _examine_open(home, skip_writes=bool(errors)))
    # An open memory fails with the errors that are listed already, with or without their remedies.
    findings += [
        finding
        for finding in opened
        if not (finding.failed and any(error in finding.detail for error in errors))
    ]
    listed = {(finding.what, finding.detail) for finding in findings}
    found = run_check("extensions", lambda: examine_extensions(home))
    findings += [finding for finding in found if (finding.what, finding.detail) not in listed]
    return Examination(str(home.path), tuple(findings))


def examine_extensions(home: HermesHome) -> Iterator[Finding]:
    """Yield what extensions find, those that do not work, and what needs one that is missing.

    It is done also if memory can't be opened.
    """
    try:
        config = load_config(home)
    except ConfigError:  # which has a finding of its own
        return
    extensions = load_extensions(config)
    parts = HomeParts(home, config, extensions)
    _ = parts.stores  # opened here, so that one that fails is known
    yield from extensions.findings(Finding, home.path, config, trial=True)
    for problem in (*extensions.problems(), *unmet_keys(config, extensions)):
        detail, _, remedy = problem.partition("; ")
        yield failed("extensions", detail, remedy)
    yield from (failed(part.name, parts.fact(part), parts.remedy(part)) for part in parts.absent)


def _examine_open(home: HermesHome, *, skip_writes: bool) -> list[Finding]:
    """Open the memory, try a real turn and examine the providers."""
    with open_memory(home) as memory:
        if skip_writes:
            tried = [Finding("a turn", "note", "not tried, because of what failed", "repair that first")]
            start_providers(memory.manager, trial_session(home, f"{SOURCE}-start"))
        else:
            tried = list(try_everything(memory))
        return [*run_checks(CHECKS, OpenHome(memory, memory.internals.selection.entries())), *tried]


def _examine_config(home: HermesHome) -> Iterator[Finding]:
    config = load_config(home)
    for warning in config.warnings:
        yield Finding("config.yaml", "warning", warning, "correct or delete that line")
    if not config.warnings:
        yield Finding("config.yaml", "ok", "read" if home.config_yaml.exists() else "not there: all defaults")


def _examine_telemetry(memory: Memory) -> Iterator[Finding]:
    if problem := memory.internals.telemetry_problem:
        yield failed("telemetry", problem.message, problem.remedy)


def _examine_curated(memory: Memory) -> Iterator[Finding]:
    """Check that the notes can be read and are within their limits."""
    notes = memory.curated.read()
    for target, conflict in notes.problems.items():
        yield failed(f"{target.upper()}.md", conflict.message, conflict.remedy)
    for target in notes.files:
        if target not in notes.problems:
            used, limit = notes.usage(target)
            count = len(notes.entries(target))
            size = f"{counted(count, 'entry', 'entries')}, {used:,} of {limit:,} characters"
            yield Finding(f"{target.upper()}.md", "ok", size)
    for key in memory.curated.files.earlier_projects():
        path = memory.home.project_md_of(key)
        remedy = f"add what still holds with `hermes-memory memory edit --target project`, then empty {str(path)!r}"
        if not memory.config.memory.mirror:
            remedy = f"{remedy} as `hermes-memory memory export DIR` writes it, and run `memory import DIR`"
        earlier = (
            "has earlier notes on this repository, whose new address had notes already; no prompt has them"
        )
        yield Finding("PROJECT.md", "warning", f"{str(path)!r} {earlier}", remedy)
    for flagged in notes.flagged():
        withheld, remedy = "an entry is kept from the model", "hermes-memory memory remove takes it out"
        yield Finding("notes", "warning", f"{withheld}: {flagged.reason}", remedy)
    yield from _examine_trust(memory)
    yield from _examine_waiting(memory)
    if not memory.curated.enabled_targets:
        yield Finding("notes", "note", "it is switched off in config.yaml")


def _examine_trust(memory: Memory) -> Iterator[Finding]:
    """Warn if text of pages and tools goes into system prompts without a look of a person."""
    config = memory.config.memory
    where = "go into system prompts without your look, so that any page can give orders there"
    if config.trust == "open":
        remedy = "hermes-memory config set memory.trust guarded"
        yield Finding("trust", "warning", f"memory.trust is open: notes of all origins {where}", remedy)
    elif pages := [origin for origin in config.accepted_origins if origin in ("tool", "web")]:
        names = " and ".join(ORIGIN_NAMES[origin] for origin in pages)
        remedy = "hermes-memory config unset memory.accepted_origins, and hermes-memory review"
        yield Finding("trust", "warning", f"memory.accepted_origins: notes from {names} {where}", remedy)


def _examine_waiting(memory: Memory) -> Iterator[Finding]:
    """Report notes that wait for a person."""
    notes = memory.curated.read()
    with contextlib.suppress(MemoryConflict):  # reported with the files
        if names := ", ".join(notes.undeclared_profile()):
            fact = f"USER.md has values of fields that memory.profile_fields does not declare: {names}"
            remedy = "declare them again, or take the lines out of USER.md"
            yield Finding("profile", "note", fact, remedy)
    waiting = waiting_status(memory)
    if waiting.count:
        sentence = waiting_sentence([note.origin.origin for note in notes.waiting_notes()])
        yield Finding("notes", "note", sentence, "hermes-memory review")
    for owner, count in waiting.of_users.items():
        remedy = f"hermes-memory review --user {owner}"
        yield Finding("notes", "note", f"notes of {owner} that wait: {count}", remedy)


def _examine_owners(memory: Memory) -> Iterator[Finding]:
    """Check that the person at home and other users see what is theirs. Without other users there is only a note."""
    if problem := memory.problem_log.of_sharing():
        state: FindingState = "warning" if stored_users(memory.sessions.database, limit=1) else "note"
        what, _, remedy = problem.partition("; ")
        yield Finding("owners", state, what, remedy)
    else:
        owners = ", ".join(memory.config.identity.owners)
        who = f"the person at home is {owners}" if owners else "nobody on other platforms"
        yield Finding("owners", "ok", who)


CHECKS: tuple[HealthCheck[OpenHome], ...] = (
    HealthCheck("notes", lambda home: _examine_curated(home.memory)),
    HealthCheck("owners", lambda home: _examine_owners(home.memory)),
    *SHARED_CHECKS,
    HealthCheck("hooks", lambda home: examine_hooks(home.memory)),
    HealthCheck("outbox", lambda home: examine_outbox(home.memory)),
    HealthCheck("telemetry", lambda home: _examine_telemetry(home.memory)),
    HealthCheck("search by meaning", lambda home: examine_vectors(home.memory)),
)
"""The checks of an open memory, in the order in which `doctor` prints them."""


# ---------------------------------------------------------------------------------------------------------------- trial

# Test sessions have a source of their own, so that a later run can delete one that a kill left behind.
SOURCE = "doctor"

# Another doctor may be running: only a test session that was idle for so long is certainly abandoned.
ABANDONED_AFTER_S = 600.0


def try_everything(memory: Memory) -> Iterator[Finding]:
    """Try the notes, a turn and the provider, each by itself."""
    yield from run_check("a note", lambda: try_curated(memory.home))
    yield from run_check("a turn", lambda: try_turn(memory))


def try_curated(home: HermesHome) -> Iterator[Finding]:
    """Add an entry with the `memory` tool, find it in the next prompt, undo it, and check that it is gone."""
    scratch = home.memories / f".{SOURCE}-{uuid.uuid4().hex}"
    word = f"check-{uuid.uuid4().hex[:12]}"
    sessions = SessionStore(scratch / "state.db")
    try:
        store = Notes(HermesHome(scratch, home.profile), sessions.database)
        session = Session(f"{SOURCE}-curated", home=str(scratch))
        answer = json.loads(call_memory_tool(store, {"action": "add", "content": word}, session))
        written = bool(answer.get("success")) and store.entries("memory") == (word,)
        shown = word in store.read().snapshot().render()
        undone = bool(store.undo().get("success")) and not store.entries("memory")
    finally:
        sessions.close()
        shutil.rmtree(scratch, ignore_errors=True)
    yield _verdict("a note", {"written": written, "shown to the model": shown, "undone": undone})


def try_turn(memory: Memory) -> Iterator[Finding]:
    """Store, find and delete a turn, and try the provider in a session that is not stored.

    The turn is stored in a session of kind "review", of which no provider gets anything.
    """
    for left in memory.sessions.list_sessions(source=SOURCE, everybody=True, limit=100):
        # A host may use the same source, and another doctor may be running.
        ours, old = left.session.id.startswith(f"{SOURCE}-check"), time.time() - ABANDONED_AFTER_S
        if ours and left.session.last_active < old:
            memory.delete_session(left.session.id)
    word = f"check{uuid.uuid4().hex[:12]}"
    session = memory.session(f"{SOURCE}-{word}", agent_context="review")
    memory.sessions.create_session(session.id, SOURCE)
    trial = trial_session(memory.home, f"{SOURCE}-trial-{word}")
    try:
        memory.end_turn(session, f"The word is {word}.", "Noted.", warm=False)
        is_found = any(word in hit.text for hit in memory.sessions.past.search(word, everybody=True, limit=5))
        start_providers(memory.manager, trial)
        query = Query(f"What do you know about {word}?", now=time.time())
        recalled = memory.manager.prefetch_all(query, trial, turn_number=1)
        for name in memory.internals.selection.names:
            health = selected_health(memory, name)
            if health is not None and health.state not in ("unavailable", "failed"):
                yield from check_provider(memory.manager, health.name, trial)
    finally:
        memory.delete_session(session.id)
    is_deleted = not any(
        word in hit.text for hit in memory.sessions.past.search(word, everybody=True, limit=5)
    )
    yield _verdict("a turn", {"stored and found": is_found, "deleted": is_deleted})
    for part in recalled.parts:
        took = f"answered in {part.elapsed_ms:.0f} ms"
        if part.state == "active" and not part.reason:
            yield Finding(f"recall of {part.provider}", "ok", took)
        else:
            answer = f"{part.state}: {without_remedy(part.reason, part.remedy)}"
            remedy = part.remedy or backend_remedy(part.provider)
            yield failed(f"recall of {part.provider}", answer, remedy)


def _verdict(what: str, steps: dict[str, bool]) -> Finding:
    wrong = [step for step, worked in steps.items() if not worked]
    if wrong:
        return failed(what, f"not {', not '.join(wrong)}", "hermes-memory logs may say more; report it")
    return Finding(what, "ok", ", ".join(steps))
