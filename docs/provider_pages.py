"""The page of each provider of ours, and the table that compares them: out of their code, packages and READMEs."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from tables import argument_table, cell, docstring_markdown, option_table, walk

from hermes_core import Capabilities, Field, HermesHome
from hermes_core.contract.hooks import POLICIES, ProviderHooks
from hermes_core.loader.discover import BUNDLED
from hermes_core.loader.load import load_provider

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
WORKERS = {"read": "read", "write": "write, a row of the outbox", "caller": "the thread that asks"}
KINDS = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    dict: "JSON object",
    list: "JSON list",
}
MODE_NAMES = ("recall_mode", "recallMode", "memory_mode")
"""The setting that chooses between recall and tools, as `NAME.json` has had it since Hermes Agent."""


@dataclass(frozen=True)
class Facts:
    """What no code can tell about a provider, out of `provider_facts.toml`; a cell of the table each."""

    title: str
    data: str
    network: str
    key: str
    model: str
    recall: str
    turns: str
    entries: str
    taken_back: str
    users: str
    offline: str
    install: str = "nothing"
    more_tools: Mapping[str, str | bool] = field(default_factory=dict)


FACTS = {
    name: Facts(**told)
    for name, told in tomllib.loads(
        Path(__file__).with_name("provider_facts.toml").read_text("utf-8")
    ).items()
}


@dataclass(frozen=True)
class Known:
    """What the code of a provider says about it. `more_tools` are offered under `Facts.more_tools` only."""

    name: str
    facts: Facts
    settings: tuple[Field, ...]
    tools: tuple[dict[str, Any], ...]
    more_tools: tuple[dict[str, Any], ...]
    capabilities: Capabilities
    hooks: tuple[str, ...]
    commands: tuple[tuple[str, click.Command], ...]
    needs: tuple[str, ...]

    @property
    def modes(self) -> tuple[str, ...]:
        """Its recall modes, by the names that all providers share."""
        found = next((one for one in self.settings if one.name in MODE_NAMES), None)
        return tuple(one for one in ("hybrid", "context", "tools") if found and one in found.choices)


@functools.cache
def known(name: str) -> Known:
    """Load a provider in a home that is thrown away, with nothing set, and ask it."""
    with tempfile.TemporaryDirectory() as folder:
        home = HermesHome(Path(folder))
        loaded = load_provider(name, home)
        with without({one.env for one in loaded.settings}), home.asking():
            tools = offered(loaded.factory, home, {})
            offers = {one["name"] for one in tools}
            more = [
                one
                for one in offered(loaded.factory, home, FACTS[name].more_tools)
                if one["name"] not in offers
            ]
            provider: Any = loaded.factory()
            return Known(
                name,
                FACTS[name],
                loaded.settings,
                tuple(tools),
                tuple(more),
                provider.capabilities,
                tuple(hook for hook in POLICIES if hasattr(provider, hook)),
                tuple(commands_of(provider, name)),
                tuple(needs(name)),
            )


def offered(
    factory: Callable[[], object], home: HermesHome, set_to: Mapping[str, str | bool]
) -> list[dict[str, Any]]:
    """The tools of a provider under these settings."""
    provider: Any = factory()
    home.provider_json(provider.name).write_text(json.dumps(dict(set_to)), encoding="utf-8")
    return list(provider.get_tool_schemas())


def commands_of(provider: Any, name: str) -> Iterator[tuple[str, click.Command]]:
    """Its commands with their whole names; the group itself left aside."""
    group = click.Group(name)
    provider.register_cli(group)
    found = walk(f"hermes-memory {name}", group, click.Context(group, info_name=name))
    return ((path, command) for path, command in found if not isinstance(command, click.Group))


def needs(name: str) -> list[str]:
    """The packages that come with it, besides the core and those of its extras."""
    project = tomllib.loads((PLUGINS / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [line for line in project["dependencies"] if not line.startswith("hermes-memory-core")]


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """The environment without these variables: what is set on this machine is no default."""
    kept = {name: os.environ.pop(name) for name in list(names) if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


# ----------------------------------------------------------------------- README


def section(name: str, heading: str) -> str:
    """A section of the package's README; tables of settings are left out, for the page has the whole one."""
    text = (PLUGINS / name / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise LookupError(f"plugins/{name}/README.md has no section {heading!r}")
    without_settings = re.sub(r"^\| setting.*\n(?:\|.*\n)+\n?", "", found[1], flags=re.MULTILINE)
    # What needs an account, a server or a program can't be run by a test of this documentation.
    return without_settings.replace("```sh\n", "```text\n").strip("\n")


def introduction(name: str) -> str:
    """What stands in the README between its title and its first section."""
    text = (PLUGINS / name / "README.md").read_text(encoding="utf-8")
    return text.partition("\n")[2].partition("\n## ")[0].strip()


# ------------------------------------------------------------------------ pages


def provider_page(name: str) -> Iterator[str]:
    """All about one provider."""
    it = known(name)
    yield f"# {it.facts.title}\n\n{introduction(name)}\n"
    yield (
        f"Package `{BUNDLED[name]}`; it comes with {joined(it.needs) or 'nothing else'}. "
        f"Inside [Hermes Agent](../../how-to/use-in-hermes-agent.md) it is `core-{name}`. "
        "[All eight side by side](index.md).\n"
    )
    yield f"## Set up\n\n{section(name, 'Set up')}\n"
    yield from settings_section(it)
    yield f"## What it does\n\n{section(name, 'What it does')}\n"
    yield from tools_section(it)
    for heading in ("What is sent where", "When it is down", "Delivery", "Forgetting", "Take memories along"):
        yield f"## {heading}\n\n{section(name, heading)}\n"
    yield from hooks_section(it)
    yield from commands_section(it)


def settings_section(it: Known) -> Iterator[str]:
    """Every setting; secrets by the variable that holds them."""
    yield "## Settings\n"
    yield (
        f"In `$HERMES_HOME/{it.name}.json`, or in the variable that is named, in the environment or `.env`; the "
        "variable comes first. A *secret* is in the environment or `.env` and nowhere else. What is marked *identity* "
        "says whose data it is: writes that were recorded under another value wait for your word. Setup does not ask "
        "for what is marked *advanced*.\n"
    )
    yield "| setting | type | default | variable | meaning |\n|---|---|---|---|---|"
    for one in it.settings:
        variable = f"`{one.env}`" if one.env else ""
        yield f"| `{one.name}` | {type_of(one)} | {default_of(one)} | {variable} | {cell(meaning_of(one))} |"
    yield ""


def type_of(one: Field) -> str:
    """The type with its choices and bounds."""
    if one.choices:
        return joined(one.choices)
    low = "" if one.minimum is None else f" from {one.minimum:g}"
    high = "" if one.maximum is None else f" up to {one.maximum:g}"
    return KINDS[one.type] + low + high


def default_of(one: Field) -> str:
    """The default; a long text is in the code."""
    if one.default in (None, ""):
        return ""
    shown = json.dumps(one.default) if not isinstance(one.default, str) else one.default
    return f"`{cell(shown)}`" if len(shown) <= 60 else "a text of the package"


def meaning_of(one: Field) -> str:
    """The help, with what else is declared."""
    when = " and ".join(f"`{name}` is {shown_value(value)}" for name, value in one.when.items())
    marks = {
        "secret": one.secret,
        "required": one.required,
        "identity": one.identity,
        "advanced": one.advanced,
    }
    marked = ", ".join(f"*{mark}*" for mark, holds in marks.items() if holds)
    help_text = one.help if not one.help or one.help.endswith((".", "!", "?")) else f"{one.help}."
    told = [help_text, f"Where {when}." if when else ""]
    told += [f"`{value}` needs the extra `{extra}`." for value, extra in one.extras.items()]
    told += [f"Also read as {joined(one.aliases)}." if one.aliases else "", marked]
    return " ".join(filter(None, told))


def shown_value(value: str | float | bool) -> str:
    """A value of a condition in words."""
    return "empty" if value == "" else f"`{value if isinstance(value, str) else json.dumps(value)}`"


def tools_section(it: Known) -> Iterator[str]:
    """The tools as the model sees them."""
    yield "## Tools\n"
    if "tools" in it.modes:
        yield "None in the recall mode `context`.\n"
    for schema in it.tools:
        yield from tool_section(schema, "")
    set_to = ", ".join(
        f"`{name}` set to `{json.dumps(value).strip(chr(34))}`" for name, value in it.facts.more_tools.items()
    )
    for schema in it.more_tools:
        yield from tool_section(schema, f" Offered with {set_to}.")
    if aliases := it.capabilities.tool_aliases:
        told = ", ".join(f"`{old}` (`{new}`)" for old, new in sorted(aliases.items()))
        yield f"Older names that are answered and not offered: {told}.\n"


def tool_section(schema: dict[str, Any], when: str) -> Iterator[str]:
    """One tool: the first sentence of its description, and its arguments."""
    yield f"### {schema['name']}\n\n{cell(first_sentence(schema['description']))}{when}\n"
    if schema["parameters"]["properties"]:
        yield from argument_table(schema)
    else:
        yield "It takes no arguments."
    yield ""


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`\"'(])", " ".join(text.split()), maxsplit=1)[0]


def hooks_at_once(capabilities: Capabilities) -> str:
    """Say how many hooks of one instance run at a time."""
    if capabilities.serial:
        return "one hook at a time"
    reads, writes = "one read hook", "one write hook at a time"
    if capabilities.concurrent > 1:
        reads = f"up to {capabilities.concurrent} read hooks (of different sessions)"
    beside = ", and `queue_prefetch` beside them" if capabilities.slow_prefetch else ""
    return f"{reads} and {writes}{beside}"


def hooks_section(it: Known) -> Iterator[str]:
    """The hooks that it implements, and how the manager calls them."""
    yield "## Hooks\n"
    alone = hooks_at_once(it.capabilities)
    per = "one instance a process" if it.capabilities.scope == "process" else "one instance a session"
    suppressed = it.capabilities.suppresses_local_writes
    local = (
        "are left to it"
        if suppressed is True
        else f"are left to it: {suppressed}"
        if suppressed
        else "stay as they are"
    )
    yield f"There is {per}, with {alone}. Local writes of MEMORY.md and USER.md {local}.\n"
    yield "| hook | worker | deadline | when it fails or is late |\n|---|---|---|---|"
    for hook in it.hooks:
        policy = POLICIES[hook]
        yield f"| [`{hook}`](../hooks.md#{anchor_of(hook)}) | {WORKERS[policy.worker]} | {policy.deadline:g} s | {policy.on_failure} |"
    yield ""


def anchor_of(hook: str) -> str:
    """Where the page of hooks tells of it; the heading holds the parameters."""
    parameters = list(inspect.signature(getattr(ProviderHooks, hook)).parameters)[1:]
    return hook + "-".join(parameters)


def commands_section(it: Known) -> Iterator[str]:
    """Its commands, each with its options."""
    yield f"## Commands\n\nThey exist while `memory.provider` is `{it.name}`.\n"
    for path, command in it.commands:
        yield f"### {path}\n\n{docstring_markdown(command.get_short_help_str(limit=300))}\n"
        yield from option_table(command)


# ------------------------------------------------------------------------ table

ROWS: dict[str, Callable[[Known], str]] = {
    "where the data is": lambda it: it.facts.data,
    "network": lambda it: it.facts.network,
    "key": lambda it: it.facts.key,
    "language model": lambda it: it.facts.model,
    "recall is made of": lambda it: it.facts.recall,
    "recall modes": lambda it: joined(it.modes) or "recall and tools, always",
    "tools": lambda it: counted(len(it.tools), len(it.more_tools), "by settings"),
    "turns, delivered": lambda it: it.facts.turns,
    "entries of MEMORY.md and USER.md, delivered": lambda it: it.facts.entries,
    "results of subagents": lambda it: "kept" if "on_delegation" in it.hooks else "not kept",
    "what a compression takes out": lambda it: compressed(it),
    "a turn that is taken back": lambda it: it.facts.taken_back,
    "users of a gateway": lambda it: it.facts.users,
    "works offline": lambda it: it.facts.offline,
    "comes with": lambda it: joined(it.needs) or "nothing",
    "to install besides": lambda it: it.facts.install,
    "settings": lambda it: counted(*asked(it.settings), "advanced"),
    "commands": lambda it: str(len(it.commands)),
}
"""A row of the table each: out of the code where it can tell, else out of `Facts`."""


def compressed(it: Known) -> str:
    """What becomes of the messages that a compression takes out of the conversation."""
    if "on_pre_compress" in it.hooks:
        return "kept once more, before"
    return "kept before, as turns" if "sync_turn" in it.hooks else "not kept"


def joined(words: Iterable[str]) -> str:
    """The words as code, with commas."""
    return ", ".join(f"`{word}`" for word in words)


def counted(first: int, more: int, how: str) -> str:
    """A number, and how many more there are in another way."""
    return f"{first}, and {more} {how}" if more else str(first)


def asked(settings: Iterable[Field]) -> tuple[int, int]:
    """How many settings setup may ask for, and how many it never does."""
    advanced = [one.advanced for one in settings]
    return advanced.count(False), advanced.count(True)


def index_page() -> Iterator[str]:
    """All providers of ours side by side."""
    yield "# The eight providers\n"
    yield (
        "Each is a package of its own, used one at a time beside curated memory and past sessions, which are always "
        "there. All of them wait in the same outbox when their backend is down, so that nothing that was acknowledged "
        "is lost; *exactly once* and *at least once* say what the backend holds after a write had to be sent again. "
        "[Choose a provider](../../how-to/choose-a-provider.md) says which to take when.\n"
    )
    yield "| | " + " | ".join(f"[{FACTS[name].title}]({name}.md)" for name in BUNDLED) + " |"
    yield "|---|" + "---|" * len(BUNDLED)
    for label, told in ROWS.items():
        yield (f"| **{label}** | " + " | ".join(cell(told(known(name))) for name in BUNDLED) + " |")


PAGES: dict[str, Callable[[], Iterable[str]]] = {
    "reference/providers/index.md": index_page,
    **{f"reference/providers/{name}.md": functools.partial(provider_page, name) for name in BUNDLED},
}
