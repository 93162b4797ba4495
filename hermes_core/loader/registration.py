"""What a provider's `register(ctx)` is given: it keeps the provider and everything else that was offered."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOMENTS: Mapping[str, str] = {
    "on_session_start": "initialize",
    "pre_llm_call": "prefetch",
    "post_llm_call": "sync_turn",
    "on_session_end": "sync_turn",
    "on_session_finalize": "on_session_end",
    "on_session_reset": "on_session_switch",
}
"""Our moment for each hook of the host's plugin system that is called here; see `hermes_hooks`."""


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    """A tool that was registered beside the provider: schema with `name`, and the function that runs it."""

    schema: Mapping[str, Any]
    handler: Callable[..., Any]
    check: Callable[[], Any] | None = None

    @property
    def name(self) -> str:
        """The tool's name for the model."""
        return str(self.schema["name"])


class _Parser(argparse.ArgumentParser):
    """A command's parser, also for packages that mean to be given that of all commands and add theirs to it."""

    def add_parser(self, *_: Any, **__: Any) -> argparse.ArgumentParser:
        """Itself: it is the parser of their command already."""
        return self


@dataclass(frozen=True, slots=True)
class HostCommand:
    """One parser: `setup` adds its arguments, `handler` runs what was parsed unless `setup` chose a function."""

    name: str
    setup: Callable[[argparse.ArgumentParser], Any]
    handler: Callable[[argparse.Namespace], Any] | None = None
    help: str = ""

    def parser(self, prog: str) -> argparse.ArgumentParser:
        """The parser, as the host would make it."""
        made = _Parser(
            prog=prog, description=self.help or None, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        self.setup(made)
        if self.handler is not None:
            made.set_defaults(func=self.handler)
        return made

    def run(self, words: Sequence[str], prog: str) -> int:
        """Parse and run; the exit code. Raises what the command raises; argparse ends the program for wrong usage."""
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

    It takes any `register_...` and has nothing else: packages look for `config` and `llm` and go another way when
    they are absent.
    """

    def __init__(self) -> None:
        self.provider: object | None = None
        self.tools: list[RegisteredTool] = []
        self.hooks: list[tuple[str, Callable[..., Any]]] = []
        self.commands: list[HostCommand] = []
        self.unused: dict[str, int] = {}

    def register_memory_provider(self, provider: object, *_: Any, **__: Any) -> None:
        """Keep the provider; the last one counts."""
        self.provider = provider

    def register_tool(self, *args: Any, **kwargs: Any) -> None:
        """Keep a tool: `(name, schema, handler)` in this order, or by keyword, `check_fn` saying if it is offered."""
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
        """Keep a hook of the host's plugin system; those of `MOMENTS` are called."""
        if name in MOMENTS and callable(callback):
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
        """Keep a command; it stands below the provider's own name."""
        if callable(setup_fn):
            self.commands.append(HostCommand(str(name), setup_fn, handler_fn, description or help))
        else:
            self._count("register_cli_command")

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("register_"):
            raise AttributeError(f"this host offers no {name!r} to plugins")
        return lambda *_, **__: self._count(name)

    def _count(self, what: str) -> None:
        self.unused[what] = self.unused.get(what, 0) + 1

    def notes(self) -> tuple[str, ...]:
        """What was accepted and has no effect here, a line each."""
        return tuple(
            f"{what} has no effect here" + (f" ({count} calls)" if count > 1 else "")
            for what, count in sorted(self.unused.items())
        )
