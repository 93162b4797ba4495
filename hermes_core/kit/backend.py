"""Base classes of a provider with settings and a backend, and two helpers around its client.

`ConfiguredProvider` reads the settings, follows the recall mode and offers the methods marked `@tool`.
`BackendProvider` also makes a client from the settings, once for each home that is opened, and closes it.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
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

# Two providers that import at once would each save the other's variables as the original ones.
_import_lock = threading.Lock()

RECALL_MODE = Field(
    "recall_mode",
    str,
    "hybrid",
    "hybrid: recall before each turn, and tools; context: recall alone; tools: tools alone.",
    choices=("hybrid", "context", "tools"),
)
"""The setting that chooses between recall and tools; `ConfiguredProvider` keeps to it."""


START_TIMEOUT = Field(
    "start_timeout",
    float,
    120.0,
    "Seconds that the start of the program behind the provider may take.",
    minimum=1.0,
    advanced=True,
)
"""The setting that limits the start of a provider's program. The host waits for `initialize` as long."""


class ConfiguredProvider(MemoryProvider):
    """A provider with settings. It checks that they are complete, and offers its tools in the modes that allow tools.

    `commands` names the provider's commands as "package.cli:COMMANDS": a tuple of click commands, imported when
    somebody asks for them. Override `read_settings` if settings have a second place, `availability` if more is
    needed than the required settings, and `tools` if the settings decide which tools there are.
    """

    commands: ClassVar[str] = ""
    _home: Path | None = None
    _options: Settings | None = None

    @property
    def home(self) -> Path:
        """The home that was opened; before that, the home of the host that asks."""
        return self._home or HermesHome.resolve().path

    @property
    def options(self) -> Settings:
        """The settings of `home`."""
        return self._options or self.read_settings(self.home)

    @property
    def mode(self) -> str:
        """The recall mode: "hybrid", "context" or "tools". A provider without that setting is "hybrid"."""
        has_one = any(field.name == RECALL_MODE.name for field in self.settings)
        return str(self.options.recall_mode) if has_one else "hybrid"

    @property
    def start_timeout(self) -> float:
        """Seconds that `initialize` may take, 0 for those of its policy. Providers with `START_TIMEOUT` have more."""
        has_one = any(field.name == START_TIMEOUT.name for field in self.settings)
        return float(self.options.start_timeout) if has_one else 0.0

    @property
    def recalls(self) -> bool:
        """True if the provider recalls before each turn."""
        return self.mode != "tools"

    @property
    def offers_tools(self) -> bool:
        """True if the model gets the provider's tools."""
        return self.mode != "context"

    def read_settings(self, home: Path) -> Settings:
        """Return the settings of a home. Raises `ConfigError`."""
        return load_settings(self.settings, home, self.name)

    def availability(self, options: Settings) -> Availability:
        """Return whether packages, programs and keys are there. Imports no package and uses no network."""
        return options.availability

    def apply_settings(self, home: Path) -> Settings:
        """Make the settings of a home those in force, and return them. Raises `ProviderUnavailable` if they
        are incomplete.
        """
        options = self.read_settings(home)
        found = self.availability(options)
        if not found:
            raise ProviderUnavailable(found.reason, found.remedy)
        self._home, self._options = home, options
        return options

    def tools(self) -> Sequence[Callable[..., Any]]:
        """Return the tools that the settings allow: every method that is marked `@tool`."""
        return marked_tools(self)

    @property
    def toolbox(self) -> ToolBox:
        """The tools that the recall mode leaves."""
        return ToolBox(*(self.tools() if self.offers_tools else ()))

    def is_available(self) -> Availability:
        """Return whether the settings of the asking home are complete."""
        return self.availability(self.read_settings(HermesHome.resolve().path))

    def register_cli(self, group: Any) -> None:
        """Add the provider's commands to `group`; they find the provider in `context.obj`."""
        if self.commands:
            group.context_settings["obj"] = self
            for command in resolve_name(self.commands):
                group.add_command(command)

    def get_tool_schemas(self) -> Sequence[dict[str, Any]]:
        """Return the schemas of the tools, none in the mode that only recalls."""
        return self.toolbox.schemas

    def handle_tool_call(self, call: ToolCall, session: Session) -> Any:
        """Run one of the tools. Returns a coroutine if any tool is an `async def`."""
        box = self.toolbox
        return box.dispatch_async(call, session) if box.is_async else box.dispatch(call, session)


class BackendProvider(ConfiguredProvider, Generic[Client]):
    """A provider in front of one client, which `connect` makes from the settings.

    The manager opens the provider with `initialize`, a command with `open`. A client with a `close` method is
    closed by `shutdown`, and before the provider makes another one.
    """

    _client: Client | None = None
    # The close of the client before. asyncio holds its tasks weakly: without a reference it might never end.
    _closing: Any = None

    def connect(self, options: Settings) -> Client:
        """Return a client for these settings; `self.home` is their home."""
        raise NotImplementedError(f"{type(self).__name__} has no connect(options) that makes its client")

    @property
    def client(self) -> Client:
        """The open client."""
        if self._client is None:
            raise RuntimeError(f"{type(self).__name__} is used before initialize()")
        return self._client

    def open(self, home: Path) -> Client:
        """Open the client for a home and return it: `initialize` without a session, for commands.

        Raises `ConfigError`, and `ProviderUnavailable` if the settings are incomplete.
        """
        closing = self.close()
        if isinstance(closing, Awaitable):
            from asyncio import ensure_future

            self._closing = ensure_future(closing)
        self._client = self.connect(self.apply_settings(home))
        return self._client

    def close(self) -> Any:
        """Close the client, if there is one. Returns a coroutine if the client's `close` is one."""
        client, self._client = self._client, None
        return client.close() if client is not None and hasattr(client, "close") else None

    def initialize(self, session: Session) -> Any:
        """Open the home of the session. Returns `Any`, so that a subclass may make it an `async def`."""
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
    """Call `ask` every `pause` seconds until its answer is true or `seconds` have passed, and return the last answer.

    Use it for a self-test, or for a tool that may wait; never for a write, which the manager repeats.
    """
    until = clock() + seconds
    while not (answer := ask()) and clock() < until:
        sleep(pause)
    return answer


def later_session(session: Session) -> Session:
    """Return another session of the same person, as it comes after `session`.

    A self-test writes in one session and reads in the other: a backend that recalls only what its own session said
    recalls nothing that was said earlier.
    """
    return replace(session, id=f"{session.id}-later", parent_id="")


def import_with(module: str, variables: Mapping[str, str]) -> ModuleType:
    """Import `module` while these environment variables have these values, and return it.

    Some SDKs read the environment at import, for example to switch their telemetry off. A module that is
    imported already is returned as it is. The environment belongs to the whole process: a program that another
    thread starts meanwhile inherits the variables.
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
