"""The provider: hooks, and the tools that the model sees. Threads, deadlines, retries and fences are the host's."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
{%- if cookiecutter.kind == "local" %}
from pathlib import Path
{%- endif %}
from typing import Annotated, Any

from hermes_core import (
{%- if cookiecutter.kind == "sdk" %}
    Availability,
{%- endif %}
    Check,
    MemoryWrite,
    Query,
    Recall,
    RecallItem,
    Session,
    SessionSwitch,
    Turn,
)
from hermes_core.kit import (
    BackendProvider,
    Range,
    Settings,
    clip,
    fold_space,
    is_trivial,
    key_of,
    later_session,
    person_name,
    profile_name,
    query_text,
    recall_within,
    storable,
    tool,
    utc_time,
)

from {{ cookiecutter.__package }}.client import Client, Note{% if cookiecutter.kind == "sdk" %}, installed{% endif %}
from {{ cookiecutter.__package }}.settings import NAME, SETTINGS

MAX_RECALLED = 8
"""Notes that a turn is given at most."""

MAX_NOTE_CHARS = 2000
"""Characters of one note. What is longer is a pasted document."""

PROMPT = """# {{ cookiecutter.name }}
What the person said before is recalled by itself when it fits. Keep lasting facts with `{{ cookiecutter.__prefix }}_remember`; look
further with `{{ cookiecutter.__prefix }}_search`."""


class {{ cookiecutter.__class }}(BackendProvider[Client]):
    """Notes of what people say, each in the memory of the one who said it."""

    name = NAME
    settings = SETTINGS
    commands = "{{ cookiecutter.__package }}.cli:COMMANDS"

    # -------------------------------------------------------------- setup
{%- if cookiecutter.kind == "sdk" %}

    def availability(self, options: Settings) -> Availability:
        """The SDK must be there, and all that the settings ask for."""
        if not installed():
            return Availability.no("the SDK is not installed", "pip install ...")
        return super().availability(options)
{%- endif %}

    def connect(self, options: Settings) -> Client:
        """The client for these settings; a command and a session use it alike."""
{%- if cookiecutter.kind == "local" %}
        return Client(self.home / Path(options.path).expanduser())
{%- elif cookiecutter.kind == "http" %}
        return Client(options.url, options.api_key, options.timeout)
{%- else %}
        return Client(options.api_key, options.project, self.home)
{%- endif %}

    def check(self, session: Session) -> Sequence[Check]:
        """Write a note, find it in another session, forget it."""
        word = f"check{uuid.uuid4().hex}"
        self.client.put(Note(word, _owner(session), f"{word} is what the self-test wrote.", time.time()))
        try:
            found = [note.key for note in self.client.search(word, _owner(later_session(session)), 1)]
        finally:
            self.client.forget(word)
        return [Check("write, recall, forget", found == [word], self.client.place)]

    # --------------------------------------------------------------- turn

    def system_prompt_block(self) -> str:
        """What the tools are for."""
        return PROMPT

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Notes that fit the message, best first, within its budget; none for small talk."""
        if is_trivial(query.text):
            return Recall()
        found = self.client.search(query_text(query.text), _owner(session), MAX_RECALLED)
        items = (RecallItem(note.text, note.score, note.key, when=utc_time(note.at)[:10]) for note in found)
        return recall_within(items, query.budget)

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """Keep what the person said. The turn's id is the key, so that a repeat changes nothing."""
        if not is_trivial(turn.user):
            self.client.put(Note(turn.id, _owner(session), _short(turn.user), turn.at))

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Mirror MEMORY.md and USER.md, a note for each entry."""
        if write.previous:
            self.client.forget(_entry_key(session, write.target, write.previous))
        if write.content:
            key, text = _entry_key(session, write.target, write.content), _short(write.content)
            self.client.put(Note(key, _owner(session), text, time.time()))

    def on_session_switch(self, switch: SessionSwitch) -> None:
        """Forget the turns that the person took back."""
        for turn_id in switch.rewound_turns:
            self.client.forget(turn_id)

    # ------------------------------- tools; the docstring is what the model reads

    @tool("{{ cookiecutter.__prefix }}_remember")
    def remember(
        self, fact: Annotated[str, "one sentence that stands alone"], session: Session
    ) -> dict[str, Any]:
        """Keep a fact for later conversations."""
        text = _short(fact)
        self.client.put(Note(key_of(_owner(session), text), _owner(session), text, time.time()))
        return {"remembered": text}

    @tool("{{ cookiecutter.__prefix }}_search")
    def search(
        self, query: str, session: Session, limit: Annotated[int, Range(1, 50)] = 10
    ) -> dict[str, Any]:
        """Look for what was said or kept in earlier conversations."""
        found = self.client.search(query_text(query), _owner(session), limit)
        return {"results": [{"text": note.text, "when": utc_time(note.at)[:10]} for note in found]}


def _owner(session: Session) -> str:
    """Whose memory it is: one person in all their chats, for each profile."""
    return person_name(session) or profile_name(session.identity)


def _entry_key(session: Session, target: str, text: str) -> str:
    """Of an entry: two people, or two profiles, may have the same."""
    return key_of(_owner(session), target, text)


def _short(text: str) -> str:
    return clip(fold_space(storable(text)), MAX_NOTE_CHARS)
