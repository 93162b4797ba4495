"""The provider: hooks, and the tools that the model sees. Threads, deadlines, retries and fences are the host's."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from hermes_core import (
{%- if cookiecutter.kind != "local" %}
    Availability,
{%- endif %}
    Check,
{%- if cookiecutter.kind != "local" %}
    HermesHome,
{%- endif %}
    MemoryProvider,
    MemoryWrite,
    Query,
    Recall,
    RecallItem,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.kit import (
{%- if cookiecutter.kind != "local" %}
    ProviderUnavailable,
{%- endif %}
    Range,
    ToolBox,
    ToolInputInvalid,
    clip,
    fitting,
    fold_space,
    is_trivial,
    load_settings,
    storable,
    tool,
)

from {{ cookiecutter.__package }}.client import Client, Note{% if cookiecutter.kind == "sdk" %}, installed{% endif %}
from {{ cookiecutter.__package }}.settings import NAME, SETTINGS

RECALLED = 8
"""Notes that a turn is given at most."""

LONGEST = 2000
"""Characters of one note. What is longer is a pasted document."""

PROMPT = """# {{ cookiecutter.name }}
What the person said before is recalled by itself when it fits. Keep lasting facts with `{{ cookiecutter.__prefix }}_remember`; look
further with `{{ cookiecutter.__prefix }}_search`."""


class {{ cookiecutter.__class }}(MemoryProvider):
    """Notes of what people say, each in the memory of the one who said it."""

    name = NAME
    settings = SETTINGS

    def __init__(self) -> None:
        self._tools = ToolBox(self.remember, self.search)
        self._client: Client | None = None

    # -------------------------------------------------------------- setup
{%- if cookiecutter.kind != "local" %}

    def is_available(self) -> Availability:
        """{% if cookiecutter.kind == "sdk" %}The SDK must be there, and a{% else %}A{% endif %}ll that the settings ask for."""
{%- if cookiecutter.kind == "sdk" %}
        if not installed():
            return Availability.no("the SDK is not installed", "pip install ...")
{%- endif %}
        return load_settings(SETTINGS, HermesHome.resolve().path, NAME).availability
{%- endif %}

    def open(self, home: Path) -> Client:
        """The client by the settings of a home; `initialize` without a session, for commands."""
        self.shutdown()
        options = load_settings(SETTINGS, home, NAME)
{%- if cookiecutter.kind == "local" %}
        self._client = Client(home / Path(options.path).expanduser())
{%- else %}
        if not options.availability:
            raise ProviderUnavailable(options.availability.reason, options.availability.remedy)
{%- if cookiecutter.kind == "http" %}
        self._client = Client(options.url, options.api_key, options.timeout)
{%- else %}
        self._client = Client(options.api_key, options.project, home)
{%- endif %}
{%- endif %}
        return self._client

    def initialize(self, session: Session) -> None:
        """Open what the settings name."""
        self.open(Path(session.home))

    def check(self, session: Session) -> Sequence[Check]:
        """Write a note, find it, forget it."""
        word = f"check{uuid.uuid4().hex}"
        self.client.put(Note(word, session.scope, f"{word} is what the self-test wrote.", time.time()))
        try:
            found = [note.key for note in self.client.search(word, session.scope, 1)]
        finally:
            self.client.forget(word)
        return [Check("write, recall, forget", found == [word], self.client.place)]

    def register_cli(self, group: Any) -> None:
        """`hermes {{ cookiecutter.name }} search`."""
        from {{ cookiecutter.__package }}.cli import add_commands

        add_commands(group, self)

    # --------------------------------------------------------------- turn

    def get_tool_schemas(self) -> Sequence[dict[str, Any]]:
        """The two tools below."""
        return self._tools.schemas

    def system_prompt_block(self) -> str:
        """What the tools are for."""
        return PROMPT

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Notes that fit the message, best first, within its budget; none for small talk."""
        if is_trivial(query.text):
            return Recall()
        found = self.client.search(clip(storable(query.text), LONGEST), session.scope, RECALLED)
        return fitting(
            (RecallItem(note.text, note.score, note.key, when=_day(note.at)) for note in found), query.budget
        )

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        """Run one of the tools."""
        return self._tools.dispatch(call, session)

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """Keep what the person said. The turn's id is the key, so that a repeat changes nothing."""
        if not is_trivial(turn.user):
            self.client.put(Note(turn.id, session.scope, _short(turn.user), turn.at))

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Mirror MEMORY.md and USER.md, a note for each entry."""
        if write.previous:
            self.client.forget(_key(write.target, write.previous))
        if write.content:
            text = _short(write.content)
            self.client.put(Note(_key(write.target, write.content), session.scope, text, time.time()))

    def on_session_switch(self, switch: SessionSwitch) -> None:
        """Forget the turns that the person took back."""
        for turn_id in switch.rewound_turns:
            self.client.forget(turn_id)

    def shutdown(self) -> None:
        """Close the client."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # ------------------------------- tools; the docstring is what the model reads

    @tool("{{ cookiecutter.__prefix }}_remember")
    def remember(
        self, fact: Annotated[str, "one sentence that stands alone"], session: Session
    ) -> dict[str, Any]:
        """Keep a fact for later conversations."""
        text = _short(fact)
        if not text:
            raise ToolInputInvalid("fact is empty", "send a sentence")
        self.client.put(Note(_key(session.scope, text), session.scope, text, time.time()))
        return {"remembered": text}

    @tool("{{ cookiecutter.__prefix }}_search")
    def search(
        self, query: str, session: Session, limit: Annotated[int, Range(1, 50)] = 10
    ) -> dict[str, Any]:
        """Look for what was said or kept in earlier conversations."""
        found = self.client.search(clip(query, LONGEST), session.scope, limit)
        return {"results": [{"text": note.text, "when": _day(note.at)} for note in found]}

    @property
    def client(self) -> Client:
        """The open client."""
        if self._client is None:
            raise RuntimeError("{{ cookiecutter.__class }} is used before initialize()")
        return self._client


def _short(text: str) -> str:
    return clip(fold_space(storable(text)), LONGEST)


def _key(*parts: str) -> str:
    """A key that the same parts always give."""
    return hashlib.sha256("\n".join(map(storable, parts)).encode()).hexdigest()[:32]


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
