"""Fakes for tests of hosts and of the manager: a provider that records, providers that are broken, and a clock to turn.

clock = Clock()
provider = RecordingProvider()
manager = MemoryManager(home, clock=clock)
manager.add_provider(provider)
...
assert provider.hooks == ["is_available", "get_tool_schemas", "initialize", "prefetch"]
"""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hermes_core import HermesHome, MemoryManager
from hermes_core.contract.hooks import TranscriptReader
from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import (
    Availability,
    Delegation,
    EndReason,
    Erasure,
    MemoryPage,
    MemoryRecord,
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
from hermes_core.manager.plugins import implemented_hooks, register_provider

REMEMBER_TOOL: dict[str, Any] = {
    "name": "fake_remember",
    "description": "Remember a fact.",
    "parameters": {"type": "object", "properties": {"fact": {"type": "string"}}, "required": ["fact"]},
}

SETUP = frozenset({"is_available", "get_tool_schemas", "initialize"})
"""What a provider must get right to be held and started at all."""


class Clock:
    """A clock that stands until it is told to go on. Call it for the time in seconds."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock `seconds` ahead."""
        self.now += seconds


def make_session(id: str = "s1", **identity: Any) -> Session:  # noqa: A002  the field's name
    """A session of a person."""
    return Session(id=id, **identity)


def make_turn(id: str = "t1", user: str = "hello", assistant: str = "hi") -> Turn:  # noqa: A002  as above
    """A completed turn with its two messages."""
    messages = (Message(role="user", content=user), Message(role="assistant", content=assistant))
    return Turn(id, 1, user, assistant, messages)


class EveryHook(MemoryProvider):
    """Implements every hook by one method: override `answer`, which is told the hook and its arguments."""

    name = "fake"

    def answer(self, hook: str, **arguments: Any) -> Any:
        """Return the result of the hook."""
        raise NotImplementedError

    def is_available(self) -> Any:
        return self.answer("is_available")

    def backup_paths(self) -> Any:
        return self.answer("backup_paths")

    def pending_writes(self, session: Session) -> Any:
        return self.answer("pending_writes", session=session)

    def check(self, session: Session) -> Any:
        return self.answer("check", session=session)

    def export_memories(self, cursor: str, session: Session) -> Any:
        return self.answer("export_memories", cursor=cursor, session=session)

    def import_memory(self, record: MemoryRecord, session: Session) -> Any:
        return self.answer("import_memory", record=record, session=session)

    def get_tool_schemas(self) -> Any:
        return self.answer("get_tool_schemas")

    def initialize(self, session: Session) -> Any:
        return self.answer("initialize", session=session)

    def system_prompt_block(self, session: Session) -> Any:
        return self.answer("system_prompt_block", session=session)

    def on_turn_start(self, turn_number: int, message: str, session: Session, author: str) -> Any:
        start = {"turn_number": turn_number, "message": message, "session": session, "author": author}
        return self.answer("on_turn_start", **start)

    def prefetch(self, query: Query, session: Session) -> Any:
        return self.answer("prefetch", query=query, session=session)

    def queue_prefetch(self, query: Query, session: Session) -> Any:
        return self.answer("queue_prefetch", query=query, session=session)

    def handle_tool_call(self, call: ToolCall, session: Session) -> Any:
        return self.answer("handle_tool_call", call=call, session=session)

    def sync_turn(self, turn: Turn, session: Session) -> Any:
        return self.answer("sync_turn", turn=turn, session=session)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> Any:
        return self.answer("on_memory_write", write=write, session=session)

    def on_delegation(self, delegation: Delegation, session: Session) -> Any:
        return self.answer("on_delegation", delegation=delegation, session=session)

    def on_pre_compress(self, messages: Sequence[Message], compression_count: int, session: Session) -> Any:
        return self.answer(
            "on_pre_compress", messages=messages, compression_count=compression_count, session=session
        )

    def on_session_end(self, reader: TranscriptReader, reason: EndReason, session: Session) -> Any:
        return self.answer("on_session_end", reader=reader, reason=reason, session=session)

    def on_session_switch(self, switch: SessionSwitch) -> Any:
        return self.answer("on_session_switch", switch=switch)

    def forget_user(self, user: str, session: Session) -> Any:
        return self.answer("forget_user", user=user, session=session)

    def shutdown(self) -> Any:
        return self.answer("shutdown")


class RecordingProvider(EveryHook):
    """Works, and writes down each call with its arguments and thread, in order.

    Set `results[hook]` to let a hook return something else, or raise it when it is an exception; `gates[hook]` to an
    `Event` to let it wait for that first.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.threads: dict[str, set[str]] = {}
        self.results: dict[str, Any] = {}
        self.gates: dict[str, threading.Event] = {}
        # Hooks run on the manager's workers, while the test reads the calls on its own thread.
        self.changed = threading.Condition()

    def answer(self, hook: str, **arguments: Any) -> Any:
        with self.changed:
            self.calls.append((hook, arguments))
            self.threads.setdefault(hook, set()).add(threading.current_thread().name)
            self.changed.notify_all()
        # Outside the lock, since other hooks must be recorded while this one hangs.
        if hook in self.gates:
            self.gates[hook].wait()
        result = self.results.get(hook, self._default(hook, arguments))
        if isinstance(result, BaseException):
            raise result
        return result

    @property
    def hooks(self) -> list[str]:
        """The names of the calls so far, in order."""
        with self.changed:
            return [hook for hook, _ in self.calls]

    def of(self, hook: str) -> list[dict[str, Any]]:
        """The arguments of each call of one hook, in order."""
        with self.changed:
            return [arguments for name, arguments in self.calls if name == hook]

    def wait_for(self, hook: str, count: int = 1, timeout: float = 10.0) -> bool:
        """Wait until `hook` was called `count` times."""
        with self.changed:
            return self.changed.wait_for(
                lambda: sum(name == hook for name, _ in self.calls) >= count, timeout
            )

    def _default(self, hook: str, arguments: dict[str, Any]) -> Any:
        if hook in ("prefetch", "queue_prefetch"):
            item = RecallItem(f"{arguments['session'].id}: {arguments['query'].text}")
            return Recall((item,))
        defaults: dict[str, Any] = {
            "is_available": Availability(),
            "backup_paths": [],
            "pending_writes": 0,
            "export_memories": MemoryPage(),
            "check": [],
            "get_tool_schemas": [REMEMBER_TOOL],
            "system_prompt_block": "The fake remembers.",
            "handle_tool_call": '{"ok": true}',
            "on_pre_compress": "",
            "forget_user": Erasure(),
        }
        return defaults.get(hook)


class RaisingProvider(EveryHook):
    """Raises in every hook but those of `well`, which work."""

    def __init__(
        self, error: BaseException | None = None, well: frozenset[str] = SETUP, name: str = "raising"
    ) -> None:
        self.error = error or RuntimeError("broken on purpose")
        self.well = well
        self.name = name  # type: ignore[misc]
        self._working = RecordingProvider()

    def answer(self, hook: str, **arguments: Any) -> Any:
        if hook in self.well:
            return self._working.answer(hook, **arguments)
        raise self.error


class HangingProvider(EveryHook):
    """Hangs in every hook but those of `well`, until `release()`. Its threads are the manager's own, and daemons."""

    name = "hanging"

    def __init__(self, well: frozenset[str] = SETUP) -> None:
        self.well = well
        self.entered: list[str] = []
        self._released = threading.Event()
        self._working = RecordingProvider()

    def answer(self, hook: str, **arguments: Any) -> Any:
        self.entered.append(hook)
        if hook not in self.well:
            # No timeout: a deadline of the manager has to end the wait, not this fake.
            self._released.wait()
        return self._working.answer(hook, **arguments)

    def release(self) -> None:
        """Release every call that hangs, and every later call."""
        self._released.set()


class WrongTypesProvider(EveryHook):
    """Returns an object of no use from every hook but those of `well`."""

    name = "wrong-types"

    def __init__(self, wrong: Any = None, well: frozenset[str] = SETUP) -> None:
        self.wrong = object() if wrong is None else wrong
        self.well = well
        self._working = RecordingProvider()

    def answer(self, hook: str, **arguments: Any) -> Any:
        return self._working.answer(hook, **arguments) if hook in self.well else self.wrong


class MisspeltProvider(MemoryProvider):
    """A provider with a typing error in its only hook. It must be refused with the name that was meant."""

    name = "misspelt"

    def prefech(self, query: Query) -> str:
        """Never called."""
        return query.text


class UnconstructableProvider(MemoryProvider):
    """Raises when it is made."""

    name = "unconstructable"

    def __init__(self) -> None:
        raise ImportError("no module named 'vendor_sdk'")


RECORDED = (
    *("initialize_all", "build_system_prompt", "rebuild_system_prompt", "on_turn_start", "prefetch_all"),
    *("queue_prefetch_all", "sync_all", "on_memory_write", "on_delegation", "handle_tool_call"),
    *("on_pre_compress", "on_session_end", "on_session_switch", "flush", "shutdown_all"),
)
"""Methods whose calls are written down."""


class RecordingManager(MemoryManager):
    """Does all that a manager does. `calls` holds (method, positional arguments, keyword arguments), in order."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        super().__init__(*arguments, **options)

    @property
    def methods(self) -> list[str]:
        """The names of the calls so far."""
        return [name for name, _, _ in self.calls]


def _recorded(name: str) -> Callable[..., Any]:
    original: Callable[..., Any] = getattr(MemoryManager, name)

    @functools.wraps(original)
    def call(self: RecordingManager, *arguments: Any, **options: Any) -> Any:
        self.calls.append((name, arguments, options))
        return original(self, *arguments, **options)

    return call


for _name in RECORDED:
    setattr(RecordingManager, _name, _recorded(_name))


Provider = TypeVar("Provider", bound=Any)


@dataclass
class Driven(Generic[Provider]):
    """A provider that `driving` started in a home: plain words in, values out. A session is s1 of its person unless given."""

    provider: Provider
    home: HermesHome

    def __post_init__(self) -> None:
        self._loop = asyncio.Runner()
        self._plugins = register_provider(self.provider, lambda _, coroutine: self._loop.run(coroutine))
        self._hooks = implemented_hooks(self._plugins, self.provider)

    def call(self, hook: str, **arguments: Any) -> Any:
        """Call `hook` with those of the arguments that it names, and return its result; run a coroutine to its end."""
        return getattr(self._plugins.hook, hook)(**arguments)

    def session(self, id: str = "s1", **identity: Any) -> Session:  # noqa: A002  the field's name
        """A session in the home."""
        return Session(id, **{"home": str(self.home.path), **identity})

    def tool(self, name: str, session: Session | None = None, **arguments: Any) -> Any:
        """Call a tool, and return the JSON value of its answer to the model."""
        call = ToolCall(name, arguments)
        return json.loads(self.call("handle_tool_call", call=call, session=session or self.session()))

    def recalled(self, question: str, session: Session | None = None, budget: int = 1500) -> list[str]:
        """The texts that a turn with this message is given."""
        query = Query(question, budget=budget)
        found = self.call("prefetch", query=query, session=session or self.session())
        return [text for text in (*(item.text for item in found.items), found.text) if text]

    def say(
        self,
        text: str,
        turn_id: str = "t1",
        answer: str = "Noted.",
        session: Session | None = None,
        **fields: Any,
    ) -> None:
        """A completed turn of this text and this answer."""
        turn = Turn(turn_id, 1, text, answer, **fields)
        self.call("sync_turn", turn=turn, session=session or self.session())

    def write(self, id: str, action: Any, content: str = "", **fields: Any) -> None:  # noqa: A002  as above
        """A write of an entry; into MEMORY.md unless `target` says otherwise."""
        write = MemoryWrite(id, action, fields.pop("target", "memory"), content, **fields)
        self.call("on_memory_write", write=write, session=self.session())


@contextmanager
def driving(
    provider: Provider,
    home: HermesHome,
    settings: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> Iterator[Driven[Provider]]:
    """Start `provider` in `home`, with these settings in its file and these secrets in `.env`; shut it down in the end.

    Both files are written anew; without `secrets`, `.env` is left alone.
    """
    home.path.mkdir(parents=True, exist_ok=True)
    home.provider_json(provider.name).write_text(json.dumps(dict(settings or {})), encoding="utf-8")
    if secrets is not None:
        home.env_file.touch(mode=0o600)
        lines = "".join(f"{name}={value}\n" for name, value in secrets.items())
        home.env_file.write_text(lines, encoding="utf-8")
    driven = Driven(provider, home)
    with driven._loop:
        if "initialize" in driven._hooks:
            driven.call("initialize", session=driven.session())
        try:
            yield driven
        finally:
            if "shutdown" in driven._hooks:
                driven.call("shutdown")
