"""The command `hermes-memory memory allow`: a person overrules the threat scan for one exact text."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from hermes_core.actions.notes import session_of_user
from hermes_core.agent.prompt import CONTEXT_FILES, find_context_file
from hermes_core.cli import Failure, home_of
from hermes_core.cli.memory import user_option
from hermes_core.cli.output import json_option, moment, print_document, print_table
from hermes_core.config import load_config
from hermes_core.curated.document import entry_handle
from hermes_core.home import HermesHome
from hermes_core.memory import open_memory
from hermes_core.safety.terminal import printable
from hermes_core.skills.store import open_skills
from hermes_core.storage.verdicts import Verdict, Verdicts, read_for_prompt


@click.command()
@click.argument("text", required=False)
@click.option("--file", type=click.Path(path_type=Path), help="Allow this SOUL.md, AGENTS.md or CLAUDE.md.")
@click.option("--skill", metavar="NAME", help="Allow the SKILL.md of this name.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Trust this folder: its AGENTS.md or CLAUDE.md becomes part of the system prompt.",
)
@click.option("--list", "listed", is_flag=True, help="List what is allowed.")
@click.option("--remove", metavar="ID", help="Take back what --list shows under this id.")
@user_option
@json_option
@click.pass_context
def allow(
    ctx: click.Context,
    text: str | None,
    file: Path | None,
    skill: str | None,
    folder: Path | None,
    listed: bool,
    remove: str | None,
    user: str,
    as_json: bool,
) -> None:
    """Allow the exact TEXT of a note, or the short name of a withheld entry, although the scan flags it.

    What is allowed is stored by its hash. A text that changes is scanned again.
    """
    choices = [value for value in (text, file, skill, folder, remove) if value is not None]
    if len(choices) + listed != 1:
        raise click.UsageError("give one of TEXT, --file, --skill, --folder, --list and --remove")
    home = home_of(ctx)
    verdicts = Verdicts(home)
    if verdicts.fault:
        raise Failure(str(verdicts.fault))
    if listed:
        _print(verdicts.entries(), as_json)
        return
    if remove is not None:
        verdict = verdicts.remove(remove)
        if verdict is None:
            raise Failure(
                f"no verdict has the id {remove!r}, or several begin so; hermes-memory memory allow --list"
            )
        _record(home, "reject", verdict)
        if as_json:
            _print([verdict], as_json)
            return
        click.echo(f"taken back: {verdict.kind} {printable(verdict.subject)}")
        return
    if folder is not None:
        verdict = _trust(verdicts, folder)
    elif skill is not None:
        verdict = _allow_skill(verdicts, home, skill, user)
    elif file is not None:
        verdict = _allow_file(verdicts, file)
    else:
        verdict = _allow_note(verdicts, home, text or "", user)
    _record(home, "allow", verdict)
    if as_json:
        _print([verdict], as_json)
    else:
        click.echo(
            f"allowed: {verdict.kind} {printable(verdict.subject)}; "
            f"hermes-memory memory allow --remove {verdict.id} takes it back"
        )


def _allow_note(verdicts: Verdicts, home: HermesHome, text: str, user: str) -> Verdict:
    """Allow an entry that is withheld, by its short name, or a text that the scan flags."""
    with open_memory(home, provider="") as opened:
        flagged = opened.curated.of(session_of_user(opened, user)).flagged()
    entry = next((one.entry for one in flagged if one.handle == text), text)
    if verdicts.scan(entry) is None:
        raise Failure(f"the scan finds nothing in {entry_handle(entry)}, so it needs no permission")
    return verdicts.allow(entry)


def _allow_skill(verdicts: Verdicts, home: HermesHome, name: str, user: str) -> Verdict:
    config = load_config(home)
    owner = ""
    if user:
        with open_memory(home, provider="") as opened:
            owner = session_of_user(opened, user).owner
    with closing(open_skills(home, config, owner)) as store:
        return verdicts.allow(store.view(name), "skill", name)


def _allow_file(verdicts: Verdicts, path: Path) -> Verdict:
    names = ("SOUL.md", *CONTEXT_FILES)
    if path.name not in names:
        raise Failure(
            f"{str(path)!r} is in no prompt, so it needs no permission; give a file that is named "
            f"{', '.join(names)}, or allow a note by its text and a skill with --skill"
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
        opened.curated.record(decision, verdict.hash, what=verdict.kind)


def _read(path: Path) -> str:
    """Return the text as the prompt takes it."""
    try:
        return read_for_prompt(path)
    except OSError as exc:
        raise Failure(f"can't read {str(path)!r}: {exc.strerror or exc}; check its name and mode") from exc


def _print(verdicts: list[Verdict], as_json: bool) -> None:
    if as_json:
        print_document([_as_data(verdict) for verdict in verdicts])
        return
    rows = [
        (v.id, moment(v.at), v.kind if v.allowed else f"{v.kind}, not trusted", v.subject) for v in verdicts
    ]
    print_table("", ("id", "when", "what", "text"), rows, "Nothing is allowed beyond what the scan passes.")


def _as_data(verdict: Verdict) -> dict[str, object]:
    return {
        "id": verdict.id,
        "kind": verdict.kind,
        "subject": verdict.subject,
        "allowed": verdict.allowed,
        "at": verdict.at,
    }
