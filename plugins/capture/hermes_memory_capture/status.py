"""Checks of capture: the hooks in the settings, what was missed and since when, and a made-up session on the whole way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

from hermes_core import open_memory
from hermes_core.health.finding import Finding, failed, run_check
from hermes_core.safety.terminal import counted
from hermes_memory_capture.hook import FOLDER, MISSED, PID
from hermes_memory_capture.installs import Install, Installs
from hermes_memory_capture.programs import HOOK, PROGRAMS
from hermes_memory_capture.state import State, changed_at, transcripts_of, unread_transcripts
from hermes_memory_capture.worker import QUIET_S

WHAT = "capture"

# A program that writes transcripts and calls no hook for so long does not call them at all.
SILENCE_S = 600.0

TRIAL_S = 30.0
TRIAL_QUESTIONS = 10
TRIAL_TEXT = "The trial of capture keeps its teapot number {number} in the harbour office of Lisbon."
TRIAL_QUESTION = "Where does the trial of capture keep its teapot?"


def examine_home(home: Path, *, trial: bool) -> Iterator[Finding]:
    """Yield the findings about each installation, and with `trial` about a made-up session."""
    installs = Installs(home)
    found = installs.all()
    state = State.load(installs.folder)
    if found and state.problem:
        yield failed(
            WHAT, f"since {_time(state.since)}: {state.problem}", f"see {installs.folder / 'worker.log'}"
        )
    for install in found:
        yield from run_check(f"{WHAT} of {install.program}", partial(_examine, installs, install, state))
    if found:
        yield from _missed_recall(installs.folder)
    if found and trial:
        yield from run_check(WHAT, run_trial)


def _examine(installs: Installs, install: Install, state: State) -> Iterator[Finding]:
    """Yield the findings about one installation."""
    what, program = f"{WHAT} of {install.program}", PROGRAMS[install.program]
    option = f" --project {install.project!r}" if install.project else ""
    is_gone = bool(install.project) and not Path(install.project).exists()
    again = f"run: hermes-memory capture {'uninstall' if is_gone else 'install'} {install.program}{option}"
    last = state.events.get(install.program, 0.0)
    waiting = [
        file for file in unread_transcripts(install, state) if time.time() - changed_at(file) > QUIET_S
    ]
    missed = _missed_text(waiting)
    faults: list[Finding] = []
    if missing := installs.missing_events(install):
        changed = changed_at(Path(install.file))
        since = f"since {_time(changed)}" if changed else "and the file is gone"
        text = f"hooks are missing in {install.file!r} ({', '.join(missing)}), {since}; {missed}"
        faults.append(failed(what, text, again))
    elif (
        max(map(changed_at, transcripts_of(install, state)), default=0.0) > max(last, install.at) + SILENCE_S
    ):
        since = _time(last) if last else f"the installation, {_time(install.at)}"
        remedy = (
            program.remark or f"see if hooks are switched off in the settings of {program.title}; {again}"
        )
        faults.append(failed(what, f"{program.title} has called no hook since {since}; {missed}", remedy))
    for file in waiting:
        known = state.transcripts.get(str(file))
        if known is not None and known.problem:
            text = f"since {_time(known.since)} something of {str(file)!r} is not in memory: {known.problem}"
            faults.append(
                failed(what, text, "the next event takes it in; if it stays, update hermes-memory-importers")
            )
    event = f"last event {_time(last)}" if last else f"no event since {_time(install.at)}"
    yield from faults or [Finding(what, "ok", f"hooks in {install.file!r}, {event}; {missed}")]


def _missed_text(waiting: list[Path]) -> str:
    if not waiting:
        return "no transcript was missed"
    oldest = _time(min(map(changed_at, waiting)))
    return f"{counted(len(waiting), 'transcript')} since {oldest} will be taken in by the next session"


def _missed_recall(folder: Path) -> Iterator[Finding]:
    """Yield the last reason why a message got no recall."""
    count, last = _last_missed(folder)
    if count:
        yield Finding(
            "capture: recall", "note", f"{counted(count, 'message')} got none; the last one: {last}"
        )


def _last_missed(folder: Path) -> tuple[int, str]:
    """Return how many messages got no recall, and when and why the last one."""
    try:
        lines = (folder / MISSED).read_text(encoding="utf-8", errors="replace").splitlines()
        at, program, reason = lines[-1].split(" ", 2)
        return len(lines), f"{_time(float(at))}, {program}: {reason}"
    except (OSError, LookupError, ValueError):
        return 0, ""


def _time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")


# --------------------------------------------------------------------- trial


def run_trial() -> Iterator[Finding]:
    """Let the hooks capture and recall a made-up session in a home of its own, and yield the finding."""
    with tempfile.TemporaryDirectory(prefix="hermes-capture-") as name:
        began = time.monotonic()
        reason = _try_in(Path(name))
        took = f"{time.monotonic() - began:.1f} s"
    if reason:
        yield failed(WHAT, f"a made-up session was not captured: {reason}", "see the log of the worker above")
    else:
        yield Finding(WHAT, "ok", f"a made-up session was captured and recalled in {took}")


def _try_in(home: Path) -> str:
    """Return why a made-up session of Claude Code was not captured or recalled in an empty home, "" if it was."""
    folder, session = home / FOLDER, str(uuid.uuid4())
    (folder / "spool").mkdir(parents=True)
    folder.chmod(0o700)
    text = TRIAL_TEXT.format(number=uuid.uuid4().int % 1000)
    transcript = home / f"{session}.jsonl"
    transcript.write_text(
        "".join(f"{json.dumps(record)}\n" for record in _records(session, text)), encoding="utf-8"
    )
    event = {"session_id": session, "transcript_path": str(transcript), "cwd": str(home)}
    try:
        error = _run_hook(home, "append", event)[1]
        until = time.monotonic() + TRIAL_S
        while not error and list((folder / "spool").iterdir()):
            if time.monotonic() > until:
                return f"the worker did not take it in; its log: {_log(folder)!r}"
            time.sleep(0.05)
        question = {
            **event,
            "session_id": "new",
            "hook_event_name": "UserPromptSubmit",
            "prompt": TRIAL_QUESTION,
        }
        # A busy machine may answer too late.
        answers = (_run_hook(home, "recall", question)[0] for _ in range(TRIAL_QUESTIONS))
        answer = next(filter(None, answers), "")
        with open_memory(home, provider="") as memory:
            stored = [m.content for m in memory.sessions.get_messages(f"claude-code-{session}")]
        if text not in stored:
            problems = [known.problem for known in State.load(folder).transcripts.values() if known.problem]
            return (
                "; ".join(filter(None, [error, *problems])) or f"the worker's log ends with {_log(folder)!r}"
            )
        if os.name != "nt" and text not in answer:
            return f"its message was not recalled in time: {_last_missed(folder)[1]}"
        return ""
    finally:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((folder / PID).read_text()), signal.SIGTERM)


def _run_hook(home: Path, action: str, event: dict[str, str]) -> tuple[str, str]:
    command = [sys.executable, "-I", "-S", str(HOOK), str(home), "claude-code", action]
    done = subprocess.run(
        command, input=json.dumps(event).encode(), capture_output=True, timeout=TRIAL_S, check=False
    )
    return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip()


def _records(session: str, text: str) -> list[dict[str, object]]:
    """Return the records of a session of Claude Code: a message and its answer."""
    both = (("user", text), ("assistant", "Noted."))
    ids = [str(uuid.uuid4()) for _ in both]
    return [
        {
            "type": role,
            "sessionId": session,
            "uuid": ids[place],
            "parentUuid": ids[place - 1] if place else None,
            "timestamp": datetime.now().astimezone().isoformat(),
            "message": {"role": role, "content": content},
        }
        for place, (role, content) in enumerate(both)
    ]


def _log(folder: Path) -> str:
    with contextlib.suppress(OSError):
        return (folder / "worker.log").read_text(encoding="utf-8", errors="replace")[-300:]
    return ""
