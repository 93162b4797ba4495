"""A real write, recall and delete, through the code that a turn goes through; nothing of the person's is touched.

Curated memory is tried in a scratch folder inside `memories/`, a turn in a session of its own that is deleted again and
that providers get no writes of, and the provider by its own self-test.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence

from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import Check, Session
from hermes_core.curated.store import MemoryStore
from hermes_core.curated.tool import MemoryTool
from hermes_core.health.finding import Finding, backend_cure, failed, guarded
from hermes_core.health.provider import health_of
from hermes_core.home import HermesHome
from hermes_core.manager.call import CallResult
from hermes_core.manager.manager import MemoryManager
from hermes_core.memory import Memory

SOURCE = "doctor"
"""Source of the sessions that this makes; one that a kill left behind is deleted by a later run."""

LEFT_BEHIND = 600.0
"""Seconds without a word after which a session of this source belongs to nobody."""


LAST_TRY = 3.0
"""Seconds for writes that wait to be taken before the provider is judged: an outage that is over is none any more."""


def try_everything(memory: Memory) -> Iterator[Finding]:
    """Curated memory, a turn, the provider: each by itself."""
    yield from guarded("curated memory", lambda: try_curated(memory.home))
    yield from guarded("a turn", lambda: try_turn(memory))


def try_curated(home: HermesHome) -> Iterator[Finding]:
    """Add an entry by the `memory` tool, see it in the next prompt, undo it, see it gone."""
    scratch = home.memories / f".{SOURCE}-{uuid.uuid4().hex}"
    word = f"check-{uuid.uuid4().hex[:12]}"
    store = MemoryStore(HermesHome(scratch, home.profile))
    try:
        session = Session(f"{SOURCE}-curated", home=str(scratch))
        answer = json.loads(MemoryTool(store).call({"action": "add", "content": word}, session))
        written = bool(answer.get("success")) and store.entries("memory") == (word,)
        shown = word in store.take_snapshot().render()
        undone = bool(store.undo().get("success")) and not store.entries("memory")
    finally:
        store.close()
        shutil.rmtree(scratch, ignore_errors=True)
    yield _verdict("curated memory", {"written": written, "shown to the model": shown, "undone": undone})


def try_turn(memory: Memory) -> Iterator[Finding]:
    """A turn in a session that is not the person's: recall, store, find, delete; then the provider's own test."""
    for left in memory.sessions.list_sessions(source=SOURCE, limit=100):
        # A host may have a source of this name, and another doctor may be at work.
        ours, old = left.session.id.startswith(f"{SOURCE}-check"), time.time() - LEFT_BEHIND
        if ours and left.session.last_active < old:
            memory.delete_session(left.session.id)
    word = f"check{uuid.uuid4().hex[:12]}"
    session = memory.start_session(f"{SOURCE}-{word}", source=SOURCE, agent_context="review")
    try:
        started(memory.manager, session)
        recalled = memory.begin_turn(f"What do you know about {word}?", session)
        memory.end_turn(session, f"The word is {word}.", "Noted.")
        found = any(word in hit.text for hit in memory.sessions.search(word, limit=5))
        yield from _provider(memory, session)
    finally:
        memory.delete_session(session.id)
    gone = not any(word in hit.text for hit in memory.sessions.search(word, limit=5))
    yield _verdict("a turn", {"stored and found": found, "deleted": gone})
    for part in recalled.recall.parts:
        took = f"answered in {part.elapsed_ms:.0f} ms"
        if part.state == "active" and not part.reason:
            yield Finding(f"recall of {part.provider}", "ok", took)
        else:
            yield failed(
                f"recall of {part.provider}",
                f"{part.state}: {part.reason}",
                backend_cure(part.provider),
            )


def started(manager: MemoryManager, session: Session) -> None:
    """Start the providers and wait for them up to the deadline of `initialize`: a model of its own takes a while.

    What waits is sent, if the backend takes it now. Closing the memory does not wait for it once more.
    """
    manager.initialize_all(session, wait=POLICIES["initialize"].deadline)
    manager.flush(LAST_TRY)


def check_provider(manager: MemoryManager, name: str, session: Session) -> list[Finding]:
    """The provider's own self-test, a finding each line of it; a note when it has none."""
    return _findings(name, manager.ask(name, "check", session=session))


def _provider(memory: Memory, session: Session) -> Sequence[Finding]:
    health = health_of(memory)
    if health is None or health.state in ("unavailable", "failed") or health.name == "builtin":
        return []
    return check_provider(memory.manager, health.name, session)


def _findings(name: str, outcome: CallResult) -> list[Finding]:
    what = f"self-test of {name}"
    if outcome.ok:
        lines: Sequence[Check] = outcome.value
        return [_checked(what, line) for line in lines] or [Finding(what, "note", "it tested nothing")]
    if outcome.status == "skipped" and not outcome.error:
        return [Finding(what, "note", "it brings none, so only its start and recall are tried")]
    return [failed(what, f"{outcome.status}: {outcome.error}", backend_cure(name))]


def _checked(what: str, line: Check) -> Finding:
    detail = f"{line.name}: {line.detail}" if line.detail else line.name
    return Finding(what, "ok", detail) if line.ok else failed(what, detail, line.remedy)


def _verdict(what: str, steps: dict[str, bool]) -> Finding:
    wrong = [step for step, worked in steps.items() if not worked]
    if wrong:
        return failed(what, f"not {', not '.join(wrong)}", "hermes-memory logs may say more; report it")
    return Finding(what, "ok", ", ".join(steps))
