"""A provider that claims every hook and does nothing wrong: what the broken ones are made from."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import click
import pytest

from hermes_core import (
    Availability,
    Capabilities,
    Delegation,
    Field,
    HermesHome,
    MemoryProvider,
    MemoryWrite,
    Message,
    Query,
    Recall,
    RecallItem,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.contract.hooks import TranscriptReader
from hermes_core.contract.values import Check, Erasure, MemoryPage, MemoryRecord
from hermes_core.kit import BackendUnavailable, load_settings, page_of, utc_time
from hermes_core.recall.tokens import count_tokens
from hermes_memory_testing import ProviderContract

SEARCH: dict[str, Any] = {
    "name": "notebook_search",
    "description": "Search the notebook.",
    "parameters": {
        "type": "object",
        "properties": {"words": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
        "required": ["words"],
    },
}
TOKEN = "canary-7f3a9d"
PAGES = "pages.json"
COMMON = frozenset({"what", "where", "does", "is", "the", "my", "our", "in", "a", "called", "and", "of"})


class Notebook(MemoryProvider):
    """Notes in one JSON file: a list of [key, session, scope, text]."""

    name = "notebook"
    settings = (
        Field("owner", help="whose notebook it is", required=True),
        Field("limit", int, 5, "notes that are recalled at most", minimum=1, maximum=50),
        Field("token", help="never used", secret=True, env="NOTEBOOK_TOKEN"),
    )
    capabilities = Capabilities(suppresses_local_writes={"user": True}, concurrent=4, slow_prefetch=True)
    down: ClassVar[threading.Event] = threading.Event()
    mute: ClassVar[threading.Event] = threading.Event()
    released: ClassVar[threading.Event] = threading.Event()

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.path = Path()
        self.dates: dict[str, str] = {}

    # ---------------------------------------------------------------- setup

    def is_available(self) -> Availability:
        return load_settings(Notebook.settings, HermesHome.resolve().path, self.name).availability

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [SEARCH]

    def initialize(self, session: Session) -> None:
        self.options = load_settings(Notebook.settings, Path(session.home), self.name)
        self.path = Path(session.home, PAGES)

    def system_prompt_block(self) -> str:
        return "There is a notebook."

    def check(self) -> list[Check]:
        return [Check("read", isinstance(self.notes(), list))]

    def backup_paths(self) -> list[str]:
        return []

    def pending_writes(self) -> int:
        return 0

    def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        mine = [note for note in self.notes() if note[2] == session.scope]
        return page_of([MemoryRecord(text, key) for key, _, _, text in mine], cursor, 1)

    def import_memory(self, record: MemoryRecord, session: Session) -> None:
        self.add(f"{session.scope}/{record.key}", record.text, session)

    def forget_user(self, session: Session) -> Erasure:
        with self.lock:
            mine = [note[0] for note in self.notes() if note[2] == session.scope]
            self.forget(mine)
        return Erasure((f"{len(mine)} notes",) if mine else ())

    def register_cli(self, group: click.Group) -> None:
        group.add_command(click.Command("show", help="Show the notebook."))

    # ---------------------------------------------------------------- notes

    def notes(self) -> list[list[str]]:
        if self.down.is_set():
            raise BackendUnavailable("the notebook is closed")
        with self.lock:
            found: list[list[str]] = json.loads(self.path.read_text()) if self.path.exists() else []
        return found

    def save(self, notes: list[list[str]]) -> None:
        """Whole or not at all: some checks kill the process in the middle."""
        whole = self.path.with_name(f"{self.path.name}.{os.getpid()}-{threading.get_ident()}")
        whole.write_text(json.dumps(notes))
        whole.replace(self.path)

    def add(self, key: str, text: str, session: Session) -> None:
        with self.lock:
            others = [note for note in self.notes() if note[0] != key]
            self.save([*others, [key, session.id, session.scope, text]])
        if self.mute.is_set():
            raise BackendUnavailable("the answer was lost")

    def forget(self, keys: Sequence[str]) -> None:
        with self.lock:
            self.save([note for note in self.notes() if note[0] not in keys])

    def find(self, text: str, scope: str) -> list[list[str]]:
        asked = words(text) - COMMON
        return [note for note in self.notes() if note[2] == scope and len(asked & words(note[3])) > 0]

    # ----------------------------------------------------------------- turn

    def on_turn_start(self, message: str) -> None:
        self.notes()

    def prefetch(self, query: Query, session: Session) -> Any:
        items = []
        left = query.budget
        for key, said_in, _, text in self.find(query.text, session.scope):
            left -= count_tokens(text) + 4
            if left >= 0:
                items.append(RecallItem(text, id=key, session_id=said_in, when=self.dates.get(key, "")))
        return Recall(tuple(items))

    def queue_prefetch(self, query: Query, session: Session) -> Any:
        return self.prefetch(query, session)

    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        asked = call.arguments.get("words")
        if not isinstance(asked, str):
            return json.dumps({"error": "send words"})
        return json.dumps({"found": [note[3] for note in self.find(asked, session.scope)]})

    def sync_turn(self, turn: Turn, session: Session) -> None:
        self.dates[turn.id] = utc_time(turn.at)[:10]
        self.add(turn.id, turn.user, session)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        with self.lock:
            if write.action != "add":
                mine = [note for note in self.notes() if note[2] == session.scope]
                self.forget([note[0] for note in mine if write.old_text and write.old_text in note[3]])
            if write.action != "remove":
                self.add(write.id, write.content, session)

    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        self.add(delegation.id, delegation.result, session)

    # ------------------------------------------------------------- boundary

    def on_pre_compress(self, messages: Sequence[Message]) -> Any:
        return f"{len(messages)} messages are in the notebook."

    def on_session_end(self, reader: TranscriptReader, session: Session) -> None:
        for number, message in enumerate(reader.messages()):
            if message.get("role") == "user":
                self.add(f"{session.id}/{number}", message.get("content", ""), session)

    def on_session_switch(self, switch: SessionSwitch) -> None:
        self.forget(switch.rewound_turns)

    def shutdown(self) -> None:
        return None


def words(text: str) -> set[str]:
    return {word.strip(".,?!'\"").lower() for word in text[:10_000].split()} - {""}


class NotebookContract(ProviderContract):
    """The contract, on a notebook that may be broken: `provider` is the class."""

    provider: ClassVar[type[Notebook]] = Notebook
    name = "notebook"
    secrets: ClassVar[Mapping[str, str]] = {"NOTEBOOK_TOKEN": TOKEN}
    recalled_from = ("sync_turn", "on_memory_write", "on_session_end")
    isolates_users = True
    patience = 0.2
    deadlines: ClassVar[Mapping[str, float]] = dict.fromkeys(
        (
            "is_available",
            "get_tool_schemas",
            "on_turn_start",
            "system_prompt_block",
            "backup_paths",
            "pending_writes",
            "register_cli",
        ),
        20.0,
    )

    def make_provider(self) -> Notebook:
        return self.provider()

    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        return {"owner": "Ada"}

    @pytest.fixture(autouse=True)
    def _released_in_the_end(self, _contract: None) -> Iterator[None]:
        self.provider.released.clear()
        yield
        self.provider.released.set()

    @contextlib.contextmanager
    def outage(self) -> Iterator[None]:  # type: ignore[override]
        self.provider.down.set()
        try:
            yield
        finally:
            self.provider.down.clear()

    @contextlib.contextmanager
    def lost_answers(self) -> Iterator[None]:  # type: ignore[override]
        self.provider.mute.set()
        try:
            yield
        finally:
            self.provider.mute.clear()

    def received(self) -> list[str]:
        pages = self.home.path / PAGES
        return [note[3] for note in json.loads(pages.read_text())] if pages.exists() else []
