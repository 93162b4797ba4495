"""Search by meaning: is it there, does its model run, and which messages still wait for their vectors."""

from __future__ import annotations

from hermes_core.health.finding import Finding, failed
from hermes_core.memory import Memory
from hermes_core.safety.terminal import counted


def state(memory: Memory) -> str:
    """In a few words; nothing is loaded for it."""
    if memory.config.recall.semantic == "off" or not memory.config.sessions.search_enabled:
        return "off"
    meaning = memory.sessions.meaning
    if meaning is None:
        return "not installed"
    waiting = meaning.missing()
    return f"on, {counted(waiting, 'message')} to read" if waiting else "on"


def examine_meaning(memory: Memory) -> list[Finding]:
    """The same, with its model tried."""
    meaning = memory.sessions.meaning
    if meaning is not None and not meaning.works():
        return [failed("search by meaning", meaning.fault, "or write `semantic: off` under `recall:`")]
    return [Finding("search by meaning", "ok", state(memory))]
