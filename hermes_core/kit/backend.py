"""Base classes for a provider that is set up by a person and stands in front of a backend.

`ConfiguredProvider` reads the settings, keeps to the recall mode and offers the methods marked `@tool`;
`BackendProvider` also makes a client of the settings, once for each home that is opened, and closes it.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar

from hermes_core.contract.provider import MemoryProvider
from hermes_core.contract.values import Availability, Field, Session, ToolCall
from hermes_core.errors import ProviderUnavailable
from hermes_core.home import HermesHome
from hermes_core.kit.settings import Settings, load_settings
from hermes_core.kit.tools import ToolBox, marked_tools

Answer = TypeVar("Answer")
Client = TypeVar("Client")

_import_lock = threading.Lock()

RECALL_MODE = Field(
    "recall_mode",
    str,
    "hybrid",
    "hybrid: recall before each turn, and tools; context: recall alone; tools: tools alone.",
    choices=("hybrid", "context", "tools"),
)
"""The setting that chooses between recall and tools; `ConfiguredProvider` keeps to it."""


class ConfiguredProvider(MemoryProvider):
    """A provider with settings: it says whether they suffice, and offers its tools as far as they allow.

    `commands` is where its commands are, as "package.cli:COMMANDS": a tuple of click commands that is imported when they
    are asked for. Override `read_settings` where settings stand elsewhere too, `availability` where more is needed than the
    required settings, and `tools` where it depends on the settings which there are.
    """

    commands: ClassVar[str] = ""
    _home: Path | None = None
    _options: Settings | None = None

    @property
    def home(self) -> Path:
        """The home that was opened; before that, the one that asks."""
        return self._home or HermesHome.resolve().path

    @property
    def options(self) -> Settings:
        """The settings of that home."""
        return self._options or self.read_settings(self.home)

    @property
    def mode(self) -> str:
        """The recall mode: "hybrid", which it also is without that setting, "context" or "tools"."""
        has_one = any(field.name == RECALL_MODE.name for field in self.settings)
        return str(self.options.recall_mode) if has_one else "hybrid"

    @property
    def recalls(self) -> bool:
        """Whether something is to be recalled before each turn."""
        return self.mode != "tools"

    @property
    def offers_tools(self) -> bool:
        """Whether the model is given tools."""
        return self.mode != "context"

    def read_settings(self, home: Path) -> Settings:
        """The settings of a home. Raises `ConfigError`."""
        return load_settings(self.settings, home, self.name)

    def availability(self, options: Settings) -> Availability:
        """Whether packages, programs and keys are there; looked for and not imported, and no network."""
        return options.availability

    def apply_settings(self, home: Path) -> Settings:
        """The settings of a home, from now on those in force. Raises `ProviderUnavailable` when they don't suffice."""
        options = self.read_settings(home)
        found = self.availability(options)
        if not found:
            raise ProviderUnavailable(found.reason, found.remedy)
        self._home, self._options = home, options
        return options

    def tools(self) -> Sequence[Callable[..., Any]]:
        """The tools that the settings allow: every method that is marked `@tool`."""
        return marked_tools(self)

    @property
    def toolbox(self) -> ToolBox:
        """The tools that there are in the recall mode."""
        return ToolBox(*(self.tools() if self.offers_tools else ()))

    def is_available(self) -> Availability:
        """Whether the settings of the home that asks suffice."""
        return self.availability(self.read_settings(HermesHome.resolve().path))

    def register_cli(self, group: Any) -> None:
        """Its commands, which find the provider as `context.obj`."""
        if self.commands:
            group.context_settings["obj"] = self
            for command in resolve_name(self.commands):
                group.add_command(command)

    def get_tool_schemas(self) -> Sequence[dict[str, Any]]:
        """Those of the tools; none in the mode that only recalls."""
        return self.toolbox.schemas

    def handle_tool_call(self, call: ToolCall, session: Session) -> Any:
        """Run one of the tools; a coroutine where they are written as `async def`."""
        box = self.toolbox
        return box.dispatch_async(call, session) if box.is_async else box.dispatch(call, session)


class BackendProvider(ConfiguredProvider, Generic[Client]):
    """A provider in front of one client, which `connect` makes of the settings.

    The manager opens it by `initialize` and a command by `open`. A client that has a `close` is closed by `shutdown`,
    and before another one is made.
    """

    _client: Client | None = None
    _closing: Any = None
    """Of the client before, on the loop that `initialize` runs on; held, or it might never end."""

    def connect(self, options: Settings) -> Client:
        """The client for these settings, which are those of `self.home`."""
        raise NotImplementedError(f"{type(self).__name__} has no connect(options) that makes its client")

    @property
    def client(self) -> Client:
        """The open client."""
        if self._client is None:
            raise RuntimeError(f"{type(self).__name__} is used before initialize()")
        return self._client

    def open(self, home: Path) -> Client:
        """The client by the settings of a home; `initialize` without a session, for commands.

        Raises `ConfigError`, and `ProviderUnavailable` when the settings don't suffice.
        """
        closing = self.close()
        if isinstance(closing, Awaitable):
            from asyncio import ensure_future

            self._closing = ensure_future(closing)
        self._client = self.connect(self.apply_settings(home))
        return self._client

    def close(self) -> Any:
        """Close the client, if there is one; a coroutine where its `close` is one."""
        client, self._client = self._client, None
        return client.close() if client is not None and hasattr(client, "close") else None

    def initialize(self, session: Session) -> Any:
        """Open the home of the session; `Any`, so that an `async def` around it may open it on the loop."""
        self.open(Path(session.home))

    def shutdown(self) -> Any:
        """Close the client; the host awaits a `close` that is a coroutine."""
        return self.close()


def poll(
    ask: Callable[[], Answer],
    seconds: float,
    pause: float = 0.5,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Answer:
    """What `ask` answers, asked again every `pause` seconds until that is true or `seconds` are over.

    For a self-test, and for a tool that was told to wait; never for a write, which the manager tries again.
    """
    until = clock() + seconds
    while not (answer := ask()) and clock() < until:
        sleep(pause)
    return answer


def import_with(module: str, variables: Mapping[str, str]) -> ModuleType:
    """`module`, imported while these environment variables have these values; then they are as before.

    For SDKs that can be told in no other way to keep their telemetry to themselves or their files in a folder. What is
    imported already is given as it is. The environment belongs to the whole process: a program that another thread
    starts meanwhile inherits the variables.
    """
    found = sys.modules.get(module)
    if found is not None:
        return found
    with _import_lock, _environment(variables):
        return importlib.import_module(module)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
