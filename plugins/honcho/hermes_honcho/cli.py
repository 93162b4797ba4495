"""Commands of the provider, under `hermes-memory honcho`. Settings are written where the file has them, for this home alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hermes_core import HermesError, Session
from hermes_core.kit import Settings, clip, load_settings, printable, redact, save_settings
from hermes_core.kit.cli import command_home, home_session, json_option, limit_option, print_facts, print_rows
from hermes_honcho import names
from hermes_honcho.ledger import Ledger
from hermes_honcho.settings import LEVELS, MODES, NAME, SETTINGS, STRATEGIES, address, observed, turns_a_batch

if TYPE_CHECKING:
    from hermes_honcho.client import Client

GLOBAL_FILE = "~/.honcho/config.json"
"""Where Honcho's programs keep settings that they share."""


# --------------------------------------------------------------------- looking


@click.command()
@json_option
@click.pass_context
def status(context: click.Context, as_json: bool) -> None:
    """Show Honcho's address, the names of the peers, the settings of recall, and whether the server answers."""
    home = command_home(context)
    options = load_settings(SETTINGS, home.path, NAME)
    told = _settings(options, home_session(context), Ledger(home.path))
    try:
        client = _open(context)
        told["waiting turns"] = context.obj.ledger.waiting_turns()
        told["waiting notes"] = context.obj.ledger.waiting_notes()
        told["refused writes"] = context.obj.ledger.refused()
        told["pending at Honcho"] = client.pending()
        told["server"] = "answers"
    except HermesError as exc:
        told["server"] = exc.message
    print_facts(told, as_json)
    if told["server"] != "answers":
        context.exit(1)


def _settings(options: Settings, session: Session, ledger: Ledger) -> dict[str, Any]:
    peers = names.who(options, session)
    where = names.session_name(options, session, Path.cwd(), ledger.is_free)
    shared = options.sessionStrategy != "per-session" or str(Path.cwd()) in (options.sessions or {})
    return {
        "address": address(options),
        "workspace": names.workspace(options, session.identity),
        "you": peers.user,
        "agent": peers.ai,
        "session here": where if shared else "one for each conversation",
        "recall": options.recallMode if options.enabled else "disabled",
        "observation": {
            who: dict(zip(("me", "others"), flags, strict=True)) for who, flags in observed(options).items()
        },
        "messages": _sent(options),
        "cadence": {"context": options.contextCadence, "dialectic": options.dialecticCadence},
    }


def _sent(options: Settings) -> str:
    """Return in words when messages go to Honcho."""
    if not options.saveMessages:
        return "not sent"
    batch = turns_a_batch(options)
    return {0: "sent when a session ends", 1: "sent after each turn"}.get(batch, f"sent after {batch} turns")


@click.command()
@limit_option()
@json_option
@click.pass_context
def sessions(context: click.Context, limit: int, as_json: bool) -> None:
    """List the newest sessions of the workspace, with the folders that are mapped to them."""
    found = _open(context).sessions(limit)
    folders = {name: folder for folder, name in (context.obj.options.sessions or {}).items()}
    rows = [
        {"session": name, "since": at.isoformat() if at else "", "folder": folders.get(name, "")}
        for name, at in found
    ]
    print_rows(rows, as_json, _line)


@click.command()
@limit_option()
@json_option
@click.pass_context
def peers(context: click.Context, limit: int, as_json: bool) -> None:
    """List the peers of the workspace."""
    found = _open(context).peers(limit)
    who = names.who(context.obj.options, home_session(context))
    roles = {who.user: "you", who.ai: "the agent"}
    print_rows([{"peer": name, "is": roles.get(name, "")} for name in found], as_json, _line)


# --------------------------------------------------------------------- settings


@click.command()
@click.option("--user", help="Your name in Honcho.")
@click.option("--ai", help="The agent's name in Honcho.")
@click.option("--reasoning", type=click.Choice(LEVELS), help="How hard Honcho thinks for recall.")
@click.pass_context
def peer(context: click.Context, user: str | None, ai: str | None, reasoning: str | None) -> None:
    """Show the two peers of a conversation, or name them."""
    for name in filter(None, (user, ai)):
        if names.clean(name) != name:
            raise click.BadParameter(f"{name!r} is no name for a peer: use letters, digits, '-' and '_'")
    given = {"peerName": user, "aiPeer": ai, "dialecticReasoningLevel": reasoning}
    options = _save(context, {key: value for key, value in given.items() if value is not None})
    who = names.who(options, home_session(context))
    print_facts(
        {"you": who.user, "agent": who.ai, "reasoning": options.dialecticReasoningLevel}, as_json=False
    )


@click.command()
@click.argument("value", required=False, type=click.Choice(MODES))
@click.pass_context
def mode(context: click.Context, value: str | None) -> None:
    """Show or choose what the agent gets: hybrid (recall and tools), context (recall alone), tools."""
    click.echo(_save(context, {"recallMode": value} if value else {}).recallMode)


@click.command()
@click.argument("value", required=False, type=click.Choice(STRATEGIES))
@click.pass_context
def strategy(context: click.Context, value: str | None) -> None:
    """Show or choose what shares a session in Honcho."""
    click.echo(_save(context, {"sessionStrategy": value} if value else {}).sessionStrategy)


@click.command()
@click.option("--context", "context_tokens", type=click.IntRange(50), help="Tokens of recall at most.")
@click.option("--dialectic", type=click.IntRange(50), help="Characters of reasoning that are recalled.")
@click.pass_context
def tokens(context: click.Context, context_tokens: int | None, dialectic: int | None) -> None:
    """Show or set how much recall a turn is given."""
    given = {"contextTokens": context_tokens, "dialecticMaxChars": dialectic}
    options = _save(context, {key: value for key, value in given.items() if value is not None})
    budget = options.contextTokens or "the host's budget"
    print_facts(
        {"context (tokens)": budget, "dialectic (characters)": options.dialecticMaxChars}, as_json=False
    )


@click.command("map")
@click.argument("name", required=False)
@click.option("--remove", is_flag=True, help="Forget the name of this folder.")
@click.pass_context
def map_(context: click.Context, name: str | None, remove: bool) -> None:
    """Give conversations in this folder the session NAME in Honcho; without NAME, list the folders that have one."""
    home = command_home(context)
    mapped = dict(load_settings(SETTINGS, home.path, NAME).sessions or {})
    here = str(Path.cwd())
    if remove:
        mapped.pop(here, None)
    elif name is not None:
        if names.clean(name) != name:
            raise click.BadParameter(f"{name!r} is no name for a session: use letters, digits, '-' and '_'")
        mapped[here] = name
    if remove or name is not None:
        save_settings(SETTINGS, home.path, NAME, {"sessions": mapped or None})
    print_rows([{"folder": folder, "session": one} for folder, one in mapped.items()], False, _line)


@click.command()
@click.pass_context
def enable(context: click.Context) -> None:
    """Use Honcho in this home."""
    _save(context, {"enabled": True})
    click.echo("Honcho is used, from the next start on")


@click.command()
@click.pass_context
def disable(context: click.Context) -> None:
    """Leave Honcho alone in this home; what it holds stays."""
    _save(context, {"enabled": False})
    click.echo("Honcho is left alone, from the next start on")


@click.command()
@click.option(
    "--from", "source", type=click.Path(path_type=Path), help=f"Another file, such as {GLOBAL_FILE}."
)
@click.pass_context
def sync(context: click.Context, source: Path | None) -> None:
    """Give the profiles of this home the settings that they lack; with --from, take what this home lacks.

    Whose data it is (server, workspace, names) is given to no profile: each has a memory of its own.
    """
    home = command_home(context)
    own = {one.name for one in SETTINGS if one.identity}
    if source is not None:
        path = source.expanduser().absolute()
        if not path.is_file():
            raise click.BadParameter(f"there is no file {str(path)!r}")
        # What the file says of whose data it is, it says of the default profile.
        kept_apart = own if home.profile != "default" else ()
        given = {key: value for key, value in _given(path.parent, path.stem).items() if key not in kept_apart}
        click.echo(f"{home.path}: {_complete(home.path, given)}")
        click.echo(
            f"a key in {path} is not copied: hermes-memory memory setup {NAME} keeps it in .env", err=True
        )
        return
    given = {key: value for key, value in _given(home.path, NAME).items() if key not in own}
    folders = sorted(path for path in (home.path / "profiles").glob("*") if path.is_dir())
    for folder in folders:
        click.echo(f"{folder.name}: {_complete(folder, given)}")
    if not folders:
        click.echo("this home has no profiles", err=True)


# --------------------------------------------------------------------- memory


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--show", is_flag=True, help="Show what Honcho knows about the agent.")
@click.pass_context
def identity(context: click.Context, file: Path | None, show: bool) -> None:
    """Tell Honcho who the agent is, from FILE (SOUL.md of the home by default), or show what it knows."""
    client = _open(context)
    home, place = command_home(context), context.obj.place(home_session(context))
    if show:
        known = client.view(place.ai, place.ai)
        lines = [*(f"- {fact}" for fact in known.card), known.representation]
        click.echo(printable_lines("\n".join(filter(None, lines))) or "nothing is known about the agent yet")
        return
    chosen = file or home.soul_md
    if not chosen.is_file():
        raise click.BadParameter(f"there is no file {str(chosen)!r}")
    client.ensure("identity", {place.ai: (True, False)})
    text = redact(chosen.read_text(encoding="utf-8", errors="replace")).strip()
    if not text:
        raise click.BadParameter(f"{str(chosen)!r} is empty")
    made = client.upload("identity", place.ai, chosen.name, text)
    click.echo(f"{chosen.name} was sent as {made} message{'s' if made != 1 else ''} of {place.ai}")


@click.command()
@click.pass_context
def migrate(context: click.Context) -> None:
    """Give Honcho the entries of MEMORY.md and USER.md that it does not have yet."""
    _open(context)
    there = len(context.obj.local_entries())
    new, refused = context.obj.migrate(home_session(context))
    click.echo(f"{new} of {there} new")
    for entry, error in refused.items():
        click.echo(f"Honcho refuses {clip(entry, 80)!r}: {error}", err=True)
    if refused:
        context.exit(1)


# --------------------------------------------------------------------- private


def printable_lines(text: str) -> str:
    """Return `text` without terminal control characters, with its lines."""
    return "\n".join(printable(line) for line in text.splitlines())


def _open(context: click.Context) -> Client:
    """Open the client of the home that the command line names, until the command ends."""
    home = command_home(context)
    client: Client = context.obj.open(home.path, home.profile)
    context.call_on_close(context.obj.shutdown)
    return client


def _save(context: click.Context, values: dict[str, Any]) -> Settings:
    home = command_home(context)
    if values:
        save_settings(SETTINGS, home.path, NAME, values)
    return load_settings(SETTINGS, home.path, NAME)


def _given(folder: Path, name: str) -> dict[str, Any]:
    """Return what the file sets, without secrets and without keys of other programs."""
    found = load_settings(SETTINGS, folder, name, {}, get_secret=lambda _: None)
    return {one.name: getattr(found, one.name) for one in SETTINGS if found.source(one.name) == "file"}


def _complete(folder: Path, given: dict[str, Any]) -> str:
    """Save what the home in `folder` does not say itself; how it went, in words."""
    present = _given(folder, NAME)
    new = {key: value for key, value in given.items() if key not in present}
    if new:
        save_settings(SETTINGS, folder, NAME, new)
    return f"took {', '.join(new)}" if new else "lacked nothing"


def _line(row: dict[str, str]) -> str:
    return "  ".join(filter(None, row.values()))


COMMANDS = (
    *(status, sessions, peers),
    *(peer, mode, strategy, tokens, map_, sync, enable, disable),
    *(identity, migrate),
)
