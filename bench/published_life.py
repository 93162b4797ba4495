"""The life of one published provider in this host, run by `published.py` in the environment of its package.

The provider that config.yaml names is activated in a fresh home. Two turns are stored and delivered, recall is asked for,
a tool is called, the session ends, a second session asks again, and the memory is closed. The last line of the output is
JSON with what happened.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

# At the end: this folder has a `recall.py`, and a package under test may have a `recall` too.
sys.path.append(str(Path(__file__).parent))

from published_corpus import ANSWER, USER, WORD, arguments, writes

from hermes_core import Memory, Session, open_memory
from hermes_core.errors import ProviderError, ProviderUnconfigured
from hermes_core.home import HermesHome
from hermes_core.loader.discover import discover
from hermes_core.loader.entry_points import normalise
from hermes_core.loader.load import LoadedProvider, load_provider

START_TIMEOUT_S, DELIVERY_TIMEOUT_S, SHUTDOWN_TIMEOUT_S = 32.0, 30.0, 15.0
SECOND_USER = "My office is on the third floor, next to the library."
SECOND_ANSWER = "The third floor, next to the library."
QUESTIONS = ("What is the name of my dog?", f"dog {WORD}", "PostgreSQL database")
AVOIDED = ("forget", "delete", "reset", "clear", "purge", "remove")
MAX_TOOLS = 6
MAX_WARNINGS = 3


def main() -> int:
    """Print the names under which a distribution offers a provider, or live the life of the configured one."""
    what, *names = sys.argv[1:]
    home = HermesHome.resolve()
    if what == "names":
        places = [place for place in discover(home) if normalise(place.distribution) == normalise(names[0])]
        result: dict[str, Any] = {
            "names": list(dict.fromkeys(place.name for place in places if not place.shadowed_by))
        }
    else:
        result = Life(home).result
    print("\n" + json.dumps(result))
    return 0


class Warnings(logging.Handler):
    """What the provider and its packages logged as a warning or worse, without what this host logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note the message once."""
        text = " ".join(record.getMessage().split())[:160]
        if not record.name.startswith(("hermes_core", "py.warnings")) and text not in self.texts:
            self.texts.append(text)


class Life:
    """The life of the configured provider; `result` has what happened."""

    def __init__(self, home: HermesHome) -> None:
        self.result: dict[str, Any] = {
            "loads": False,
            "recall": "",
            "tools": 0,
            "tool": "",
            "delivered": False,
        }
        logged = Warnings()
        logging.getLogger().addHandler(logged)
        memory = open_memory(home)
        try:
            if not memory.internals.selection.loaded:
                self.result["reason"] = "; ".join(memory.problems())
                self.result["loads"] = _waits_for_settings(memory.config.memory.provider, home)
                return
            self.result.update(loads=True, source=_only(memory).entry.source)
            self._live(memory)
        finally:
            began = time.monotonic()
            memory.close(SHUTDOWN_TIMEOUT_S)
            self.result["shutdown"] = round(time.monotonic() - began, 1)
            self.result["logged"] = logged.texts[-MAX_WARNINGS:]

    def _live(self, memory: Memory) -> None:
        session = memory.start_session("session-one")
        memory.manager.initialize_all(session, wait=START_TIMEOUT_S)
        self._tell_state(memory)
        if self.result.get("state") != "active":
            return  # its backend is not here, and each wait would take its whole time
        for user, answer in ((USER, ANSWER), (SECOND_USER, SECOND_ANSWER)):
            memory.begin_turn(session, user)
            memory.end_turn(session, user, answer)
        self.result["delivered"] = memory.flush(DELIVERY_TIMEOUT_S)
        self._recall(memory, session, "P")
        self._use_tools(memory, session)
        if "P" not in self.result["recall"]:
            self._recall(memory, session, "A")
        memory.end_session(session)
        memory.flush(DELIVERY_TIMEOUT_S)
        again = memory.start_session("session-two")
        memory.manager.initialize_all(again, wait=START_TIMEOUT_S)
        self._recall(memory, again, "R")
        self._tell_state(memory)

    def _recall(self, memory: Memory, session: Session, mark: str) -> None:
        """Note the mark if the provider, not the host's own search, brings the word back."""
        for question in QUESTIONS:
            recall = memory.begin_turn(session, question).recall
            if any(WORD in text or "PostgreSQL" in text for _, text in recall.contexts):
                self.result["recall"] += mark
                return

    def _use_tools(self, memory: Memory, session: Session) -> None:
        """Call tools that write, then tools that read, and note the answers."""
        own = {schema["name"] for schema in memory.tool_schemas()} - {"memory", "session_search"}
        schemas = [schema for schema in memory.tool_schemas() if schema["name"] in own]
        self.result["tools"] = len(schemas)
        usable = [schema for schema in schemas if not any(word in schema["name"] for word in AVOIDED)]
        usable.sort(key=lambda schema: not writes(schema["name"]))
        for schema in (usable[:MAX_TOOLS] + usable[-MAX_TOOLS:])[: 2 * MAX_TOOLS]:
            text = USER if writes(schema["name"]) else WORD
            answer = memory.call_tool(session, schema["name"], arguments(schema, text))
            if not writes(schema["name"]) and WORD in answer and "T" not in self.result["recall"]:
                self.result["recall"] += "T"
            if not _is_error(answer):
                self.result["tool"] = "ok"
            else:
                self.result["tool"] = self.result["tool"] or answer[:160]

    def _tell_state(self, memory: Memory) -> None:
        for health in memory.manager.health():
            if health.name in memory.internals.selection.loaded:
                hooks = dict(health.hooks)
                self.result.update(state=health.state, reason=health.reason, hooks=sorted(hooks))
        loaded = _only(memory)
        self.result["warnings"] = [*loaded.warnings, *loaded.late_warnings()]


def _only(memory: Memory) -> LoadedProvider:
    """Return the one provider that was loaded."""
    (loaded,) = memory.internals.selection.loaded.values()
    return loaded


def _is_error(answer: str) -> bool:
    """Return True if the answer of a tool reports an error."""
    try:
        data = json.loads(answer)
    except ValueError:
        return '"error"' in answer[:200]
    return isinstance(data, dict) and bool(data.get("error"))


def _waits_for_settings(name: str, home: HermesHome) -> bool:
    """Return True if the provider is listed as unavailable because it can't be made without its settings."""
    try:
        load_provider(name, home)
    except ProviderUnconfigured:
        return True
    except ProviderError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
