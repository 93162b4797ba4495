"""One provider without a manager: its hooks, called as a manager calls them. For tests of a provider's own rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, Generic, TypeVar

from hermes_core.contract.values import MemoryWrite, Query, Session, ToolCall, Turn
from hermes_core.home import HermesHome
from hermes_core.manager.registry import Registry
from hermes_core.manager.results import checked

Provider = TypeVar("Provider", bound=Any)


@dataclass
class Driven(Generic[Provider]):
    """A provider that `driving` started in a home: plain words in, values out. A session is s1 of its person unless given."""

    provider: Provider
    home: HermesHome

    def __post_init__(self) -> None:
        self._hooks = Registry().enter_provider(self.provider)
        self._loop = asyncio.Runner()

    def call(self, hook: str, **arguments: Any) -> Any:
        """What `hook` returns, given those of the arguments that it names. A coroutine is run to its end."""
        named = self._hooks[hook]
        value = named.function(*[arguments[name] for name in named.argnames])
        return checked(hook, self._loop.run(value) if isinstance(value, CoroutineType) else value)

    def session(self, id: str = "s1", **identity: Any) -> Session:  # noqa: A002  the field's name
        """A session in the home."""
        return Session(id, **{"home": str(self.home.path), **identity})

    def tool(self, name: str, session: Session | None = None, **arguments: Any) -> Any:
        """What the model gets of a tool, read from its JSON."""
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
