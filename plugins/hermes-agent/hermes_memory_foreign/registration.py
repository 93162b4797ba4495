"""The `ctx` of a plugin's `register(ctx)`: it keeps the provider and what was registered beside it."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_core import HermesHome
from hermes_core.errors import ProviderError
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_memory_foreign.companion_files import login_of, sibling
from hermes_memory_foreign.environment import environment_of
from hermes_memory_foreign.host_model import PluginLlm, has_model

logger = logging.getLogger(__name__)

HOOKS: Mapping[str, str] = {
    "on_session_start": "initialize",
    "pre_llm_call": "prefetch",
    "post_llm_call": "sync_turn",
    "on_session_end": "sync_turn",
    "on_session_finalize": "on_session_end",
    "on_session_reset": "on_session_switch",
}
"""The plugin hooks of Hermes Agent that are called here, each with our hook that calls it."""

TOOL_HOOKS = frozenset({"pre_tool_call", "post_tool_call", "transform_tool_result"})
"""The plugin hooks that the agent calls around each tool."""


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool that was registered beside the provider: its schema with `name`, and the function that runs it."""

    schema: Mapping[str, Any]
    handler: Callable[..., Any]
    check: Callable[[], Any] | None = None

    @property
    def name(self) -> str:
        """The tool's name for the model."""
        return str(self.schema["name"])


@dataclass(frozen=True, slots=True)
class RegisteredSkill:
    """A skill that was registered beside the provider, by its folder or its SKILL.md."""

    name: str
    path: Path

    @property
    def folder(self) -> Path:
        """The folder of the skill."""
        return self.path if self.path.is_dir() else self.path.parent


@dataclass(frozen=True, slots=True)
class RegisteredCommand:
    """A command for the chat: `handler` gets the words after the name and returns the text to show, or None."""

    name: str
    handler: Callable[[str], Any]
    description: str = ""


class _CommandParser(argparse.ArgumentParser):
    """The parser of one command."""

    def add_parser(self, *_: Any, **__: Any) -> argparse.ArgumentParser:
        """Return the parser itself, for packages that expect the parser of all commands and add theirs to it."""
        return self


@dataclass(frozen=True, slots=True)
class HostCommand:
    """A command with an argparse parser.

    `setup` adds the arguments. `handler` runs the parsed options, unless `setup` set a function with `set_defaults`.
    """

    name: str
    setup: Callable[[argparse.ArgumentParser], Any]
    handler: Callable[[argparse.Namespace], Any] | None = None
    help: str = ""

    def parser(self, prog: str) -> argparse.ArgumentParser:
        """Return the parser as Hermes Agent would construct it."""
        parser = _CommandParser(
            prog=prog, description=self.help or None, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.setup(parser)
        if self.handler is not None:
            parser.set_defaults(func=self.handler)
        return parser

    def run(self, words: Sequence[str], prog: str) -> int:
        """Parse `words`, run the command and return its exit code.

        Raises what the command raises. argparse raises SystemExit for wrong usage.
        """
        parser = self.parser(prog)
        options = parser.parse_args(list(words))
        function = getattr(options, "func", None)
        if not callable(function):
            parser.print_help()
            return 0
        answer = function(options)
        return answer if isinstance(answer, int) and not isinstance(answer, bool) else 0


class Registrations:
    """The `ctx` of `register(ctx)`.

    It takes every `register_...`, and has `llm` if config.yaml names a model. It has no other attribute: packages probe
    for `config`, and go another way if it is absent.
    """

    def __init__(self) -> None:
        self.provider: object | None = None
        self.tools: list[RegisteredTool] = []
        self.hooks: list[tuple[str, Callable[..., Any]]] = []
        self.commands: list[HostCommand] = []
        self.skills: list[RegisteredSkill] = []
        self.chat_commands: list[RegisteredCommand] = []
        self.unused: dict[str, int] = {}
        self.notes: tuple[str, ...] = ()

    def register_memory_provider(self, provider: object, *_: Any, **__: Any) -> None:
        """Keep the provider. The last one counts."""
        self.provider = provider

    def register_tool(self, *args: Any, **kwargs: Any) -> None:
        """Keep a tool: `(name, schema, handler)` in this order or by keyword; `check_fn` says if it is offered."""
        values = {**dict(zip(("name", "schema", "handler"), args, strict=False)), **kwargs}
        name, schema, handler = values.get("name"), values.get("schema"), values.get("handler")
        if not isinstance(schema, Mapping) or not callable(handler):
            self._count("register_tool")
            return
        described = {
            "description": values.get("description") or "",
            **schema,
            "name": name or schema.get("name"),
        }
        check = values.get("check_fn")
        self.tools.append(RegisteredTool(described, handler, check if callable(check) else None))

    def register_hook(self, name: str, callback: Callable[..., Any], *_: Any, **__: Any) -> None:
        """Keep a plugin hook if it is one of `HOOKS` or `TOOL_HOOKS`."""
        if name in (HOOKS.keys() | TOOL_HOOKS) and callable(callback):
            self.hooks.append((name, callback))
        else:
            self._count(f"register_hook({name!r})")

    def register_cli_command(
        self,
        name: str,
        help: str = "",  # noqa: A002  the host's name for it
        setup_fn: Callable[..., Any] | None = None,
        handler_fn: Callable[..., Any] | None = None,
        description: str = "",
        **_: Any,
    ) -> None:
        """Keep a command. It becomes a subcommand of the provider's own name."""
        if callable(setup_fn):
            self.commands.append(HostCommand(str(name), setup_fn, handler_fn, description or help))
        else:
            self._count("register_cli_command")

    def register_skill(self, name: str, path: Any = None, description: str = "", **_: Any) -> None:
        """Keep a skill, which the model can read like the person's own."""
        del description  # the index shows that of SKILL.md
        place = Path(path) if isinstance(path, str | os.PathLike) else None
        if place is None or not place.exists():
            self._count(f"register_skill({name!r}) without a file")
        else:
            self.skills.append(RegisteredSkill(str(name), place))

    def register_command(
        self, name: str, handler: Any = None, description: str = "", args_hint: str = "", **_: Any
    ) -> None:
        """Keep a command, which the chat runs as `/name`."""
        clean = str(name).strip().lstrip("/").lower().replace(" ", "-")
        if clean and callable(handler):
            label = " ".join(filter(None, (str(args_hint), str(description))))
            self.chat_commands.append(RegisteredCommand(clean, handler, label))
        else:
            self._count("register_command")

    def add(self, others: Registrations) -> None:
        """Take over what another plugin of the same package registered, but not its provider."""
        tools = {tool.name for tool in self.tools}
        self.tools += [tool for tool in others.tools if tool.name not in tools]
        # Both plugins may be the same code, whose hooks must run once.
        hooks = {(name, _identity(callback)) for name, callback in self.hooks}
        self.hooks += [hook for hook in others.hooks if (hook[0], _identity(hook[1])) not in hooks]
        names = {command.name for command in self.commands}
        self.commands += [command for command in others.commands if command.name not in names]
        self.skills += others.skills
        self.chat_commands += others.chat_commands
        for what, count in others.unused.items():
            self.unused[what] = self.unused.get(what, 0) + count

    def __getattr__(self, name: str) -> Any:
        # Not a property: packages probe with hasattr, and without a model the attribute must be absent.
        if name == "llm" and has_model():
            return PluginLlm()
        if not name.startswith("register_"):
            raise AttributeError(f"this host offers no {name!r} to plugins")
        return lambda *_, **__: self._count(name)

    def _count(self, what: str) -> None:
        self.unused[what] = self.unused.get(what, 0) + 1

    def warnings(self) -> tuple[str, ...]:
        """Return a line for each registration that was accepted and has no effect here, then the `notes`."""
        unused = [
            f"{what} has no effect here" + (f" ({count} calls)" if count > 1 else "")
            for what, count in sorted(self.unused.items())
        ]
        return (*unused, *self.notes)


def _identity(function: Callable[..., Any]) -> tuple[str, str]:
    """Return what two registrations of the same function have in common."""
    return getattr(function, "__module__", ""), getattr(function, "__qualname__", repr(function))


def module_command(module: str, name: str) -> Iterator[HostCommand]:
    """Yield the command that `register_cli(subparser)` of the `cli.py` beside `module` sets up, if there is one.

    `login` follows if there is an `oauth_flow.py`. The handler of the command has the name by which people select the provider. A `cli.py` that can't be imported is logged.
    """
    cli = sibling(module, "cli")
    setup = getattr(cli, "register_cli", None)
    if cli is not None and callable(setup):
        names = (f"{name}_command", f"{name.replace('-', '_')}_command")
        handlers = (getattr(cli, attribute, None) for attribute in names)
        yield HostCommand(name, setup, next(filter(callable, handlers), None))
    log_in = login_of(module)
    if log_in is not None:
        yield HostCommand("login", lambda _: None, lambda _: log_in(), "Log in with the browser.")


def run_host_command(provider: object, home: HermesHome, name: str, words: Sequence[str]) -> int:
    """Run `hermes-memory NAME words...` in the provider's home and environment, and return the exit code.

    The provider's own command takes all words, unless the first word names a command that was registered beside it.
    Raises `ProviderError` if the provider has no command, and if the command raises.
    """
    host_commands: Callable[[], list[HostCommand]] = getattr(provider, "host_commands", list)
    commands = host_commands()
    if not commands:
        raise ProviderError(f"provider {name!r} has no commands", "its tools and settings are all it offers")
    own = commands[0]
    others = {command.name: command for command in commands if command.name != name}
    other = others.get(words[0]) if words else None
    prog = f"hermes-memory {name} {other.name}" if other else f"hermes-memory {name}"
    # Commands of these providers read HERMES_HOME and their keys from the environment.
    with environment_of(home.path):
        answer = call_foreign(lambda: (other or own).run(words[1:] if other else words, prog))
    if not isinstance(answer, ForeignError):
        return answer
    # argparse ends with SystemExit for --help and wrong usage; its exit code is the command's.
    if isinstance(answer.error, SystemExit):
        raise answer.error
    raise ProviderError(
        f"a command of provider {name!r} raised {answer}", "hermes-memory --debug shows the traceback"
    )
