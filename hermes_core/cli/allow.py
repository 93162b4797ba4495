"""The command `hermes-memory memory allow`: a person overrules the threat scan for one exact text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from hermes_core.actions.notes import allow_note, session_of_user
from hermes_core.cli import Failure, extensions_of, home_of
from hermes_core.cli.options import user_option
from hermes_core.cli.output import moment, print_result, print_table
from hermes_core.config import Config, load_config
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome
from hermes_core.loader.parts import HomeParts
from hermes_core.memory import open_memory
from hermes_core.safety.terminal import printable
from hermes_core.storage.verdicts import CONTEXT_FILES, Verdict, Verdicts, find_context_file, read_for_prompt

_OPTION = "part_"
"""Beginning of the parameter of a part; its number among the parts follows."""


class _AllowCommand(click.Command):
    """Command with an option for each part of the home whose texts can be allowed, such as `--skill`."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, with those of the parts before `--folder`."""
        params = super().get_params(ctx)
        place = next(number for number, one in enumerate(params) if one.name == "folder")
        return [*params[:place], *_part_options(ctx), *params[place:]]


def _part_options(ctx: click.Context) -> Iterator[click.Option]:
    for number, part in enumerate(_parts(ctx).known.values()):
        about = f"Allow the text of the {part.noun} of this name."
        yield click.Option([f"--{part.noun}", f"{_OPTION}{number}"], metavar="NAME", help=about)


def _parts(ctx: click.Context) -> HomeParts:
    home = home_of(ctx)
    try:
        config = load_config(home)
    except ConfigError:  # the command itself reports it
        config = Config()
    return HomeParts(home, config, extensions_of(ctx))


@click.command(cls=_AllowCommand)
@click.argument("text", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="Allow this SOUL.md, AGENTS.md or CLAUDE.md.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Trust this folder: its AGENTS.md or CLAUDE.md becomes part of the system prompt.",
)
@click.option("--list", "listed", is_flag=True, help="List what is allowed.")
@click.option("--remove", metavar="ID", help="Take back what --list shows under this id.")
@user_option
@click.pass_context
def allow(
    ctx: click.Context,
    /,
    text: str | None,
    file: Path | None,
    folder: Path | None,
    listed: bool,
    remove: str | None,
    user: str,
    **names: str | None,
) -> None:
    """Allow the exact TEXT of a note, or the short name of a withheld entry, although the scan flags it.

    What is allowed is stored by its hash. A text that changes is scanned again.
    """
    home, parts = home_of(ctx), _parts(ctx)
    choices = [value for value in (text, file, folder, remove, *names.values()) if value is not None]
    if len(choices) + listed != 1:
        options = "".join(f" --{part.noun}," for part in parts.known.values())
        raise click.UsageError(f"give one of TEXT, --file,{options} --folder, --list and --remove")
    verdicts = Verdicts(home)
    if verdicts.fault:
        raise Failure(str(verdicts.fault))
    if listed:
        entries = verdicts.entries()
        rows = [
            (v.id, moment(v.at), v.kind if v.allowed else f"{v.kind}, not trusted", v.subject)
            for v in entries
        ]
        nothing = "Nothing is allowed beyond what the scan passes."
        _print(entries, lambda: print_table("", ("id", "when", "what", "text"), rows, nothing))
        return
    if remove is not None:
        removed = verdicts.remove(remove)
        if removed is None:
            raise Failure(
                f"no verdict has the id {remove!r}, or several begin so; hermes-memory memory allow --list"
            )
        _record(home, "reject", removed)
        _print([removed], lambda: click.echo(f"taken back: {removed.kind} {printable(removed.subject)}"))
        return
    if folder is not None:
        verdict = _trust(verdicts, folder)
    elif named := [(name, value) for name, value in names.items() if value is not None]:
        ((option, name),) = named
        part = list(parts.known)[int(option.removeprefix(_OPTION))]
        verdict = _allow_item(verdicts, home, parts, part, name, user)
    elif file is not None:
        verdict = _allow_file(verdicts, file)
    else:
        with open_memory(home, provider="") as opened:
            verdict = allow_note(opened, session_of_user(opened, user), text or "")
    if text is None:
        _record(home, "allow", verdict)
    undo = f"hermes-memory memory allow --remove {verdict.id} takes it back"
    _print([verdict], lambda: click.echo(f"allowed: {verdict.kind} {printable(verdict.subject)}; {undo}"))


def _allow_item(
    verdicts: Verdicts, home: HermesHome, parts: HomeParts, part: str, name: str, user: str
) -> Verdict:
    """Allow the text of an item of a part, such as a skill."""
    known = parts.known[part]
    with open_memory(home, provider="") as opened:
        if (store := opened.internals.parts.stores.get(part)) is None:
            raise Failure(f"{opened.internals.parts.fact(known)}; {opened.internals.parts.remedy(known)}")
        owner = session_of_user(opened, user).owner if user else ""
        items = store.items(opened.sessions.database, owner)
        return verdicts.allow(items.text(name), known.noun, name)


def _allow_file(verdicts: Verdicts, path: Path) -> Verdict:
    names = ("SOUL.md", *CONTEXT_FILES)
    if path.name not in names:
        raise Failure(
            f"{str(path)!r} is in no prompt, so it needs no permission; give a file that is named "
            f"{', '.join(names)}, or allow a note by its text, and other texts with the options of this command"
        )
    return verdicts.allow(_read(path), "file", str(path.absolute()))


def _trust(verdicts: Verdicts, folder: Path) -> Verdict:
    path = find_context_file(folder.absolute())
    if path is None:
        raise Failure(f"{str(folder)!r} has no AGENTS.md and no CLAUDE.md; name the folder that has one")
    return verdicts.allow(_read(path), "folder", str(path.parent))


def _record(home: HermesHome, decision: str, verdict: Verdict) -> None:
    """Record the decision in the chain that `hermes-memory verify` checks."""
    with open_memory(home, provider="") as opened:
        opened.curated.changes.record(decision, verdict.hash, what=verdict.kind)


def _read(path: Path) -> str:
    """Return the text as the prompt takes it."""
    try:
        return read_for_prompt(path)
    except OSError as exc:
        raise Failure(f"can't read {str(path)!r}: {exc.strerror or exc}; check its name and mode") from exc


def _print(verdicts: list[Verdict], show: Callable[[], object]) -> None:
    names = ("id", "kind", "subject", "allowed", "at")
    print_result([{name: getattr(verdict, name) for name in names} for verdict in verdicts], show)
