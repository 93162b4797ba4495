"""What a provider's `register(ctx)` is given: it keeps the provider and everything else that was offered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


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


class Registrations:
    """The `ctx` of `register(ctx)`.

    It takes any `register_...` and has nothing else: packages look for `config` and `llm` and go another way when
    they are absent.
    """

    def __init__(self) -> None:
        self.provider: object | None = None
        self.tools: list[RegisteredTool] = []
        self.hooks: list[tuple[str, Callable[..., Any]]] = []
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
        """Keep a hook of the host's plugin system. None of them is called here."""
        self.hooks.append((name, callback))
        self._count(f"register_hook({name!r})")

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
