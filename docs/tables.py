"""What the generated pages have in common: commands, arguments and cells as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click


def walk(path: str, command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """`command` and all below it."""
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from walk(f"{path} {name}", child, click.Context(child, context, info_name=name))


def option_table(command: click.Command) -> Iterator[str]:
    """Arguments and options, the help option left aside."""
    if not command.params:
        return
    yield "| argument or option | meaning |\n|---|---|"
    for param in command.params:
        if isinstance(param, click.Option):
            names = [*param.opts, *param.secondary_opts]
            names[-1] += f" {param.metavar}" if param.metavar else ""
            choices = param.type.choices if isinstance(param.type, click.Choice) else ()
            more = f" One of {', '.join(map(str, choices))}." if choices else ""
            more += f" Default: {param.default}." if param.show_default else ""
            yield f"| {', '.join(f'`{name}`' for name in names)} | {cell((param.help or '') + more)} |"
        else:
            yield f"| `{param.human_readable_name}` | {'required' if param.required else 'optional'} |"
    yield ""


def fenced(docstring: str) -> str:
    """The docstring with its doctest, if it has one, as a block of code; click's own marks taken out."""
    lines = docstring.replace("\b\n", "").splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith(">>>")), None)
    if start is None:
        return "\n".join(lines)
    return "\n".join([*lines[:start], "```pycon", *lines[start:], "```"])


def argument_table(schema: dict[str, Any]) -> Iterator[str]:
    """The arguments of a tool, by its schema."""
    yield "| argument | type | |\n|---|---|---|"
    needed = schema["parameters"].get("required", ())
    for name, kind in schema["parameters"]["properties"].items():
        told = kind.get("description", "")
        if name in needed:
            told = f"{told.removesuffix('.')}. Required." if told else "Required."
        yield f"| `{name}` | {cell(schema_type(kind))} | {cell(told)} |"


def cell(text: str) -> str:
    """The text so that it stays within one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def schema_type(kind: dict[str, Any]) -> str:
    """A JSON schema's type in words, with its range and default."""
    told = str(kind.get("type", "any"))
    if choices := kind.get("enum"):
        told = "one of " + ", ".join(f"`{choice}`" for choice in choices)
    elif told == "array":
        told = f"list of {schema_type(kind.get('items', {}))}"
    elif fields := kind.get("properties"):
        told = "objects with " + ", ".join(f"`{name}`" for name in fields)
    if "minimum" in kind and kind.get("maximum", 2**63) < 2**63 - 1:
        told += f" from {kind['minimum']} to {kind['maximum']}"
    return told + (f", default {kind['default']}" if "default" in kind else "")
