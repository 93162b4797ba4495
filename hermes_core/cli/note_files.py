"""The commands `hermes-memory memory edit`, `export` and `import`: notes in an editor, and as files in a folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import cast

import click

from hermes_core.actions.note_files import export_note_files, import_note_files, keep_text
from hermes_core.actions.notes import session_of_user
from hermes_core.cli import Failure, home_of
from hermes_core.cli.options import target_option, user_option, with_memory
from hermes_core.cli.output import edit_text, finish, print_done, print_result, warn
from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import join_entries
from hermes_core.errors import HermesError
from hermes_core.memory import Memory, open_memory
from hermes_core.safety.terminal import counted, printable

_all_users_option = click.option(
    "--all-users", is_flag=True, help="Also the notes of all users of a gateway, in users/."
)


@click.command("edit")
@target_option
@user_option
@click.pass_context
def edit_notes(ctx: click.Context, target: str, user: str) -> None:
    """Open the notes in your editor, $VISUAL or $EDITOR, as a copy, and store what you save.

    What the agent changes meanwhile stays, entry by entry. If you both changed the same entry, your text is kept in a file
    and the notes stay as they are. Lines that hold only § separate entries.
    """
    home, name = home_of(ctx), cast(MemoryTarget, target)
    with open_memory(home, provider="") as opened:
        base = opened.curated.of(session_of_user(opened, user)).entries(name)
    before = join_entries(base)
    text = edit_text(before + "\n" if before else "", ".md")
    if text is None or text.rstrip("\n") == before:
        print_done("nothing was changed")
        return
    with open_memory(home) as opened:
        session = session_of_user(opened, user)
        store = opened.curated.of(session)
        try:
            result = store.edit(name, text, base, session=session)
            error = "" if result.get("success") else str(result["error"])
        except HermesError as exc:  # the server is down, or the disk is full
            result, error = {}, f"{exc}."
        if error:
            copy = keep_text(opened, store, name, text)
            again = f"hermes-memory memory edit{f' --target {target}' if target != 'memory' else ''}"
            again += f" --user {shlex.quote(user)}" if user else ""
            raise Failure(f"{error} Your text is in {str(copy)!r}; take what is missing over with: {again}")
        flagged, problems = store.read().flagged(name), opened.problems(session)
    print_done(" ".join([result["message"], result["usage"], result.get("notice", "")]).strip())
    warn(filter(None, [result.get("caution"), result.get("warning"), *(one.problem for one in flagged)]))
    finish(ctx, problems)


@click.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@user_option
@_all_users_option
@with_memory(reads=True)
def export_files(opened: Memory, folder: Path, user: str, all_users: bool) -> None:
    """Write MEMORY.md, USER.md and the PROJECT.md of each repository into DIR, for Git or another home.

    `origins.json` beside them says which entries nobody said. Files of an earlier export are overwritten. For sessions and
    history as well, see hermes-memory export.
    """
    counts = export_note_files(opened, folder, user, all_users=all_users)
    lines = [f"{folder / name}: {counted(count, 'entry', 'entries')}" for name, count in counts.items()]
    text = "\n".join(map(printable, lines)) or "Nothing is remembered yet."
    print_result(counts, lambda: click.echo(text))


@click.command("import")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@user_option
@_all_users_option
@with_memory()
def import_files(opened: Memory, folder: Path, user: str, all_users: bool) -> None:
    """Make the notes what MEMORY.md, USER.md and projects/*/PROJECT.md in DIR say. A missing file changes nothing.

    This is an edit by hand: hermes-memory memory undo takes it back. With storage.url, DIR may be the folder `memories` of
    this home, whose files are not read any more.
    """
    imported = import_note_files(opened, folder, user, all_users=all_users)
    done = {file.file: file.result for file in imported if file.result.get("success")}
    refused = [f"{file.file}: {file.result['error']}" for file in imported if file.file not in done]
    lines = [printable(f"{name}: {result['message']}") for name, result in done.items()]
    print_result(imported, lambda: click.echo("\n".join(lines), nl=bool(lines)))
    for result in done.values():
        warn(filter(None, [result.get("caution"), result.get("warning")]))
    finish(click.get_current_context(), [*refused, *opened.problems()], failed=bool(refused))
