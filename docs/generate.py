"""Writes the pages of the reference that come out of the code: `python docs/generate.py`, `--check` to compare only."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import adapter_page
import click
import contract_page
import host_page
import http_page
import json_page
import kit_page
import provider_pages
from tables import TOPICS, Topic, argument_table, cell, docstring_markdown, option_table, topic_of, walk

from hermes_core import errors
from hermes_core.config import BLOCKS, KEYS, LOAD_PROVIDERS, SEMANTIC, STORAGE, STORAGE_PASSWORD
from hermes_core.contract import extensions, values
from hermes_core.contract.hooks import OBSERVER_POLICIES, POLICIES, ObserverHooks, Policy, ProviderHooks
from hermes_core.contract.values import Field
from hermes_memory_agent.lifecycle import EVENTS, STEPS
from hermes_memory_foreign.plugin_source import CATALOG, HOST
from hermes_memory_telemetry import telemetry

DOCS = Path(__file__).resolve().parent
MADE = "<!-- Made by docs/generate.py out of the code; change it there. -->\n"

MOMENTS = {
    "setup": "Setup",
    "start": "Start",
    "turn": "Turn",
    "boundary": "Boundary",
    "end": "End",
    "observe": "Observers",
}
WORKERS = {
    "read": "the provider's read worker",
    "write": "the provider's write worker, as a row of the outbox",
    "caller": "the thread that asks",
    "background": "a background queue",
}
ENVIRONMENT = {
    "HERMES_HOME": "The folder that holds everything; `~/.hermes` without it (`%LOCALAPPDATA%\\hermes` on Windows).",
    "HERMES_PROFILE": "A profile's name: the home is then `$HERMES_HOME/profiles/NAME`, a whole home of its own.",
    SEMANTIC: "`auto` or `off`: whether past sessions are searched by meaning as well. Comes before `recall.semantic`.",
    STORAGE: "The address of the server with the sessions and the outbox. Comes before `storage.url`.",
    STORAGE_PASSWORD: "The password of the role in `storage.url`, here or in `.env`.",
    LOAD_PROVIDERS: "A comma list of the only providers that may load; set and empty, none. Comes before `providers.allow`.",
    telemetry.CAPTURE_CONTENT: "`true`: spans hold the text of questions, recall and turns, unless `telemetry.content` says otherwise.",
    CATALOG: "Address, folder or file of the catalog that `hermes-memory plugins install NAME` looks into, in place of Hermes Agent's.",
    HOST: "Address that `OWNER/REPO` of `hermes-memory plugins install` is below, in place of `https://github.com`.",
}
NO_HOME = "no-such-home"


def hooks_page() -> Iterator[str]:
    """Every hook with its policy."""
    yield "# Hooks\n"
    yield (
        "A provider implements the hooks it wants and no others. It subclasses `hermes_core.MemoryProvider`, or marks "
        "methods of any object with `@hookimpl`. A hook names the parameters it wants and leaves out the rest; "
        "parameters have no defaults, no `*` and no `**`. Deadlines are for one try. `async def` is welcome.\n"
    )
    yield f"Contract version: {values.CONTRACT_VERSION}. All hooks below are there since version 1.\n"
    moment = ""
    for owner, policies in ((ProviderHooks, POLICIES), (ObserverHooks, OBSERVER_POLICIES)):
        for name, policy in policies.items():
            if policy.moment != moment:
                moment = policy.moment
                yield f"## {MOMENTS[moment]}\n"
                if owner is ObserverHooks:
                    yield f"{inspect.getdoc(owner)}\n"
            yield from hook_section(getattr(owner, name), policy)
    yield f"## Extensions\n\n{inspect.getdoc(extensions)}\n"
    for name in extensions.EXTENSION_HOOKS:
        yield from hook_heading(getattr(extensions.ExtensionHooks, name))


def hook_section(function: Callable[..., Any], policy: Policy) -> Iterator[str]:
    """One hook: heading, signature, docstring, policy."""
    yield from hook_heading(function)
    yield "| called on | deadline | answers combine | when it fails or is late |\n|---|---|---|---|"
    yield f"| {WORKERS[policy.worker]} | {policy.deadline:g} s | {policy.combining} | {policy.on_failure} |\n"


def hook_heading(function: Callable[..., Any]) -> Iterator[str]:
    """One hook: heading, signature, docstring."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1:]
    typed = ", ".join(f"{p.name}: {p.annotation}" for p in parameters)
    yield f"### {function.__name__}({', '.join(p.name for p in parameters)})\n"
    yield f"`{function.__name__}({typed}) -> {signature.return_annotation}`\n"
    yield f"{inspect.getdoc(function)}\n"


def values_page() -> Iterator[str]:
    """The frozen values that hooks take and return."""
    yield "# Values\n"
    yield f"{inspect.getdoc(values)}\n"
    for name, cls in inspect.getmembers(values, dataclasses.is_dataclass):
        yield f"## {name}\n\n{docstring_markdown(inspect.getdoc(cls) or '')}\n"
        yield "| field | type | default |\n|---|---|---|"
        for field in dataclasses.fields(cls):
            yield f"| `{field.name}` | `{cell(str(field.type))}` | {default_of(field)} |"
        yield ""
    yield f"## Message\n\n{inspect.getdoc(values.Message)} A `dict`; any key may be missing.\n"
    yield "| key | type |\n|---|---|"
    yield from (
        f"| `{key}` | `{kind.__forward_arg__}` |" for key, kind in values.Message.__annotations__.items()
    )
    yield "\n## Words\n\nTypes that are one of a few words:\n\n| type | words |\n|---|---|"
    for name in ("AgentContext", "EndReason", "MemoryAction", "MemoryTarget", "SwitchReason"):
        yield f"| `{name}` | {', '.join(f'`{word}`' for word in get_args(getattr(values, name)))} |"


def default_of(field: dataclasses.Field[Any]) -> str:
    """The default as the table shows it."""
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    return "required" if field.default_factory is dataclasses.MISSING else "empty"


def config_page() -> Iterator[str]:
    """Every key of config.yaml and every environment variable."""
    yield "# Configuration\n"
    yield (
        "`config.yaml` in the home holds settings, `.env` beside it holds secrets. A missing file, block, key or value "
        "means the default. A value of a wrong type or range is an error that names the line; an unknown key has no "
        "effect and is named as a warning; keys of Hermes Agent in a block of this program are one warning together. Blocks that are not listed here belong to other programs and are left alone, "
        "and so is what stands under `memory:` once `memory.provider` is set: some providers keep settings there.\n"
    )
    yield "`hermes-memory config set KEY VALUE` writes a key, `hermes-memory config list` shows all. Commands that change the file keep its comments.\n"
    for block, cls in BLOCKS.items():
        yield f"## {block}\n\n{(inspect.getdoc(cls) or '').partition('Attributes:')[0].strip()}\n"
        for key in KEYS.values():
            if key.name.startswith(f"{block}."):
                yield from key_section(key)
    yield "## Environment\n"
    for name, text in ENVIRONMENT.items():
        yield f"### {name}\n\n{text}\n"


def key_section(key: Field) -> Iterator[str]:
    """One key: heading, help, and in a line its type, default and range."""
    kinds = {
        bool: "True or false",
        int: "A whole number",
        float: "A number",
        str: "Text",
        list[str]: "A list of texts",
        list: "A list",
    }
    limits = [f"one of {', '.join(f'`{choice}`' for choice in key.choices)}"] if key.choices else []
    limits += [f"at least {key.minimum:g}"] if key.minimum is not None else []
    limits += [f"at most {key.maximum:g}"] if key.maximum is not None else []
    default = "not set by default" if key.default is None else f"default `{json.dumps(key.default)}`"
    yield f"### {key.name}\n\n{key.help}\n"
    yield f"{', '.join([kinds[key.type], *limits, default])}.\n"


def errors_page() -> Iterator[str]:
    """The error tree, and what each error means."""
    introduction, _, rest = (errors.__doc__ or "").partition("\n\n")
    tree, _, after = rest.partition("\n\n")
    yield f"# Errors\n\n{introduction}\n\n```text\n{inspect.cleandoc(tree)}\n```\n\n{inspect.cleandoc(after)}\n"
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and issubclass(cls, Exception):
            yield f"## {name}\n\nA kind of `{cls.__bases__[0].__name__}`. {inspect.getdoc(cls)}\n"


def cli_page() -> Iterator[str]:
    """Every command with its arguments and options; a provider's own commands are its own page's business."""
    import hermes_core.cli

    yield "# Command line\n"
    yield f"{inspect.getdoc(hermes_core.cli)}\n"
    (program, command), *_ = commands()
    yield f"## {program}\n\n{docstring_markdown(inspect.cleandoc(command.help or ''))}\n"
    yield from option_table(command, root_context())
    yield from forms_table()


def cli_topic_page(topic: Topic) -> Iterator[str]:
    """Yield the commands of one topic with their arguments and options."""
    yield f"# Commands: {topic.title}\n"
    yield (
        f"The commands with which you {topic.reader}. [Command line](../cli.md) says what holds for all of them, and "
        f"[JSON](../json/{topic.file}.md) what they print with `--json`.\n"
    )
    for path, command in commands():
        if path != "hermes-memory" and topic_of(path) is topic:
            yield f"## {path}\n\n{docstring_markdown(inspect.cleandoc(command.help or ''))}\n"
            yield from option_table(command, root_context())


NOT_RUN = {
    "backup": "writes a backup of what is there",
    "chat": "begins a conversation",
    "config edit": "opens an editor",
    "demo": "has a home of its own",
    "doctor": "reports what it tested",
    "install-alias": "writes a launcher",
    "mcp": "serves",
    "memory edit": "opens an editor",
    "serve": "serves",
    "ui": "serves",
}
"""Commands that are not run on an empty home, with what they do there."""


def forms_table() -> Iterator[str]:
    """Yield the forms that commands share, and each command with what it does on an empty home."""
    yield "## Forms that all commands share\n"
    yield (
        "- A result is on standard output; warnings and errors are on standard error, with `--json` questions too. The sentence that there is "
        "nothing begins with a capital letter and ends with a full stop. An error is one line that begins with `error: ` and says after a semicolon what to do.\n"
        "- A command that lists, counts, checks or acts on all there is, and finds nothing, says so in one sentence and ends with 0; "
        "with `--json` it prints the empty value.\n"
        "- A command that is given a name which does not exist, or that can't do the one thing that it is for, ends with 1. Without "
        "an argument that it needs, or with text that is not UTF-8, it ends with 2.\n"
        "- A command that destroys something asks, unless `--yes` is given; without a terminal and without `--yes` it ends with 1 and "
        "changes nothing.\n"
        "- With `--json` the exit codes are the same, and [one document](json.md) is on standard output. A command of an extension or "
        "a provider has `--json` too.\n"
        "- A command that stores nothing new makes no home. A home that was named and does not exist is an error, code 1.\n"
    )
    yield (
        "The last column is what each command does where nothing is stored yet: its exit code, then what it says.\n"
    )
    yield "| command | `--json` | asks | on an empty home |\n|---|---|---|---|"
    for path, command in commands():
        if isinstance(command, click.Group) and not command.invoke_without_command:
            continue
        options = {name for param in command.params for name in param.opts}
        words = path.removeprefix("hermes-memory ")
        json_form = "yes" if "--json" in options else f"no: {getattr(command.callback, 'without_json', '')}"
        asks = "unless `--yes`" if "--yes" in options else ""
        link = f"cli/{topic_of(path).file}.md#{path.replace(' ', '-')}"
        yield f"| [`{words}`]({link}) | {json_form} | {asks} | {cell(on_empty_home(words, command))} |"
    yield ""


def on_empty_home(words: str, command: click.Command) -> str:
    """Return what a command does on a home where nothing is stored yet: its exit code and what it says.

    Raise if a command that finds nothing says so in another form than a sentence.
    """
    from click.testing import CliRunner

    from hermes_core.cli import main

    if words in NOT_RUN:
        return NOT_RUN[words]
    if needed := [param.human_readable_name for param in command.params if param.required]:
        return f"2: needs {' and '.join(name.replace('_', '-').upper() for name in needed)}"
    with tempfile.TemporaryDirectory() as home:
        environ = {"HOME": home, "USERPROFILE": home}
        done = CliRunner().invoke(
            main, ["--home", home, *words.split()], prog_name="hermes-memory", env=environ
        )
        said = (done.stderr.strip().splitlines() or [""])[-1] if done.exit_code else done.stdout.strip()
        said = said.removeprefix("error: ").replace(home, "HOME").replace("\\", "/")
    if "\n" in said:
        return f"{done.exit_code}: a document" if said.startswith("{") else f"{done.exit_code}: a table"
    says_nothing = not done.exit_code and said.lower().startswith(("no", "there"))
    if says_nothing and not (said[:1].isupper() and said.endswith((".", "PROGRAM"))):
        raise RuntimeError(f"{words} says no sentence: {said!r}")
    return f"{done.exit_code}: {said}"


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command of ours with its whole name, groups before what is in them."""
    from hermes_core.cli import main

    return walk("hermes-memory", main, root_context())


def root_context() -> click.Context:
    """The context of the program."""
    from hermes_core.cli import main

    # click keeps the names of the help option that it sees first.
    context = click.Context(main, info_name="hermes-memory", **main.context_settings)
    # A home that is not there: the commands of whatever provider this machine uses are not ours to document.
    context.params["home"] = NO_HOME
    return context


def lifecycle_page() -> Iterator[str]:
    """Yield the events in the life of an agent's sessions, with their steps."""
    yield "# The life of an agent\n"
    yield (
        "At each of these events the agent runs these steps, in this order. Steps of the kind `hook` reach the providers, "
        "`rows` change state.db, and `agent` changes the agent itself. A step that fails is reported in the problems of the "
        "turn, and the steps after it run. If the rows of the session can't be changed, the event ends there and the call "
        "raises `SessionError`.\n"
    )
    yield "| event | steps, in order |\n|---|---|"
    yield from (f"| {event} | {', '.join(steps)} |" for event, steps in EVENTS.items())
    yield "\n| step | touches | does |\n|---|---|---|"
    yield from (f"| {name} | {kind} | {text} |" for name, (kind, text) in STEPS.items())


def tools_page() -> Iterator[str]:
    """The tools that the model is given, with their schemas."""
    from hermes_core.curated.tool import MEMORY_SCHEMA
    from hermes_core.sessions.tool import SESSION_SEARCH_SCHEMA
    from hermes_memory_agent.skills.tool import SKILL_MANAGE_SCHEMA, SKILL_VIEW_SCHEMA
    from hermes_memory_agent.tools import delegate_tool, todo_tool

    yield "# Tools\n"
    yield (
        "What the model can call. `Memory.tool_schemas()` gives the JSON schemas of `memory`, `session_search` and the active "
        "provider's tools; the reference agent adds the others. Every answer is JSON; an error is an object with `error`.\n"
    )
    own = [delegate_tool(str.join).schema, todo_tool().schema]
    for schema in (MEMORY_SCHEMA, SESSION_SEARCH_SCHEMA, SKILL_VIEW_SCHEMA, SKILL_MANAGE_SCHEMA, *own):
        yield f"## {schema['name']}\n\n{cell(schema['description'])}\n"
        yield from argument_table(schema)
        yield ""


PAGES: dict[str, Callable[[], Iterable[str]]] = {
    "reference/hooks.md": hooks_page,
    "reference/values.md": values_page,
    "reference/config.md": config_page,
    "reference/errors.md": errors_page,
    "reference/cli.md": cli_page,
    **{f"reference/cli/{topic.file}.md": partial(cli_topic_page, topic) for topic in TOPICS},
    "reference/tools.md": tools_page,
    **json_page.PAGES,
    "reference/lifecycle.md": lifecycle_page,
    "reference/hermes-agent-contract.md": contract_page.contract_page,
    **http_page.PAGES,
    **adapter_page.PAGES,
    **host_page.PAGES,
    **kit_page.PAGES,
    **provider_pages.PAGES,
}
"""What makes each page, by its path below docs/."""


def made(name: str) -> str:
    """The whole text of one page."""
    if name.endswith(".json"):
        return "\n".join(PAGES[name]()) + "\n"
    heading, text = "\n".join(PAGES[name]()).split("\n", 1)
    return (
        f"{heading}\n\n{MADE}\n{text.strip()}\n"  # a page that began otherwise would be named after its file
    )


def stale(name: str) -> bool:
    """Whether the page in docs/ is not what the code would make of it."""
    page = DOCS / name
    return not page.exists() or page.read_text(encoding="utf-8") != made(name)


def main() -> int:
    """Write the pages that changed, or say which are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 when a page is stale"
    )
    check = parser.parse_args().check
    changed = [name for name in PAGES if stale(name)]
    for name in changed:
        sys.stdout.write(f"{'stale' if check else 'written'}: docs/{name}\n")
        if not check:
            (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
            (DOCS / name).write_text(made(name), encoding="utf-8")
    return int(check and bool(changed))


if __name__ == "__main__":
    raise SystemExit(main())
