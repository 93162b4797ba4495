"""What the generated pages have in common: commands, arguments and cells as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import click


class Topic(NamedTuple):
    """One page of the command line: its file, its title, its reader, and the words with which its commands begin."""

    file: str
    title: str
    reader: str
    commands: tuple[str, ...]


TOPICS = (
    Topic("notes", "Notes", "look after what is remembered of you", ("memory", "review", "verify")),
    Topic(
        "sessions",
        "Past sessions",
        "look into past sessions and what turns were given",
        ("sessions", "recall", "turns", "costs"),
    ),
    Topic(
        "providers",
        "Providers and extensions",
        "choose, install and watch a provider or an extension",
        (
            *("memory use", "memory off", "memory setup", "memory status"),
            *("providers", "plugins", "extensions", "outbox"),
        ),
    ),
    Topic(
        "moving",
        "Import, export and backup",
        "bring data in, take it out, move or delete it",
        ("import", "export", "capture", "claw", "migrate", "backup", "restore", "storage", "forget"),
    ),
    Topic(
        "programs",
        "Chat, page and servers",
        "talk with the agent, or serve memory to other programs",
        ("chat", "skills", "demo", "mcp", "serve", "ui", "eval"),
    ),
    Topic(
        "settings",
        "Settings and faults",
        "set it up and find out what is wrong",
        ("config", "keys", "identity", "doctor", "logs", "completion", "install-alias"),
    ),
)


def topic_of(path: str) -> Topic:
    """Return the topic of a command: the one that names the most of its words."""
    words = path.removeprefix("hermes-memory").strip()
    found = [
        (len(begin), topic)
        for topic in TOPICS
        for begin in topic.commands
        if f"{words} ".startswith(f"{begin} ")
    ]
    if not found:
        raise LookupError(f"no topic of docs/tables.py has the command {words!r}")
    return max(found)[1]


def walk(path: str, command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    """`command` and all below it."""
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from walk(f"{path} {name}", child, click.Context(child, context, info_name=name))


def option_table(command: click.Command, parent: click.Context | None = None) -> Iterator[str]:
    """Arguments and options, the help option left aside. With `parent`, also those that depend on the home."""
    params = command.params
    if parent is not None:
        context = click.Context(command, parent)
        shown = command.get_help_option(context)
        params = [param for param in command.get_params(context) if param is not shown]
    if not params:
        return
    yield "| argument or option | meaning |\n|---|---|"
    for param in params:
        if isinstance(param, click.Option):
            if param.hidden:  # an earlier spelling
                continue
            names = [*param.opts, *param.secondary_opts]
            names[-1] += f" {param.metavar}" if param.metavar else ""
            choices = (
                param.type.choices if isinstance(param.type, click.Choice) else getattr(param, "values", ())
            )
            more = f" One of {', '.join(map(str, choices))}." if choices else ""
            more += f" Default: {param.default}." if param.show_default else ""
            yield f"| {', '.join(f'`{name}`' for name in names)} | {cell((param.help or '') + more)} |"
        else:
            yield f"| `{param.human_readable_name}` | {'required' if param.required else 'optional'} |"
    yield ""


_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields|Example):")
_ENTRY = re.compile(r"    (\*{0,2}\w[\w.]*): (.*)")


def docstring_markdown(docstring: str) -> str:
    """Return a docstring as Markdown: a doctest as a block of code, Google sections as lists."""
    lines: list[str] = []
    in_section = False
    for line in docstring.replace("\b\n", "").splitlines():
        entry = _ENTRY.fullmatch(line) if in_section else None
        if line.startswith(">>>") and "```pycon" not in lines:
            lines.append("```pycon")
        if heading := _SECTION.fullmatch(line):
            in_section = True
            lines += [f"**{heading[1]}**", ""]
        elif entry:
            lines.append(f"- `{entry[1]}`: {entry[2]}")
        elif in_section and line.startswith("    "):
            lines.append(f"  {line.strip()}" if lines[-1].startswith(("- ", "  ")) else line.strip())
        else:
            in_section = in_section and not line
            lines.append(line)
    return "\n".join([*lines, "```"] if "```pycon" in lines else lines)


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
