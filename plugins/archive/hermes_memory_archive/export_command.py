"""`hermes-memory export`, and the import of what it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

from hermes_core import open_memory
from hermes_core.cli import extensions_of, home_of
from hermes_core.cli.options import home_to_read
from hermes_core.cli.output import finish, print_document, progress_bar, wants_json
from hermes_core.config import backup_folder, load_config
from hermes_core.contract.values import ORIGIN_NAMES, parse_outside_id
from hermes_core.kit import printable, redact
from hermes_core.kit.cli import confirm, has_yes
from hermes_core.loader.parts import HomeParts
from hermes_core.safety.terminal import counted, escape_hidden, hanging
from hermes_core.storage.output_file import check_output_file
from hermes_memory_archive.archive import KINDS, Archive, Manifest
from hermes_memory_archive.home_export import describe_home, export_home
from hermes_memory_archive.home_import import ArchiveContent, HomeImport, absence, examine, import_archive

HOME_USER = "home"
"""Word for the person at home in `--user`."""

user_option = click.option(
    "--user",
    "users",
    metavar="USER",
    multiple=True,
    help=f"Only this user, as telegram:42, or {HOME_USER!r}; may be given again (default: all).",
)


_NOUNS = {
    "sessions": ("session",),
    "notes": ("file of notes", "files of notes"),
    "memories": ("memory", "memories"),
}
"""Nouns of the kinds of records of each archive, in the singular and the plural."""


@click.command()
@click.argument("file", metavar="FILE", required=False, type=click.Path(dir_okay=False, path_type=Path))
@user_option
@click.option("--dry-run", is_flag=True, help="Write nothing; print counts and content hash.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.pass_context
def export(ctx: click.Context, file: Path | None, users: tuple[str, ...], dry_run: bool, force: bool) -> None:
    """Write everything that is remembered into FILE, a ZIP archive of JSON Lines that any home can import.

    That is: sessions with all messages, notes with origins and history, skills with their files, and the memories of the
    provider where it gives them. What is left out is said. The content hash is the same in every home with this content.
    No secret is taken out of what was said: keep the file as private as the home.
    """
    if file is None and not dry_run:
        raise click.UsageError("name the file to write, or give --dry-run")
    with home_to_read(ctx) as home, open_memory(home) as memory, progress_bar("exporting", "records") as bar:
        task = bar.add_task("", total=memory.sessions.counts()["sessions"])
        owners = chosen_users(users)

        def advance() -> None:
            bar.advance(task)

        if file is None or dry_run:
            manifest = describe_home(memory, owners, advance)
        else:
            check_output_file(file, memory.home, backup_folder(memory.home, memory.config), force=force)
            manifest = export_home(memory, file, owners, advance, force=force)
        problems = memory.problems()
    if wants_json():
        print_document(_document(manifest, None if dry_run else file))
    else:
        written = "" if dry_run or file is None else f" written to {file}"
        click.echo(printable(f"{_counts(manifest.counts, manifest.counts, memory.internals.parts)}{written}"))
        click.echo(f"content hash: {manifest.hash}")
        for sentence in manifest.left_out:
            click.echo(hanging(f"left out: {sentence}"))
    finish(ctx, problems)


def import_exported(
    ctx: click.Context, file: Path, users: tuple[str, ...], *, keep_origins: bool, dry_run: bool
) -> None:
    """Show what an archive holds, ask, and import it. The archive is read and checked whole before anything changes."""
    owners, as_json = chosen_users(users), wants_json()
    with Archive(file) as archive:
        home, kinds = home_of(ctx), archive.manifest.counts
        parts = HomeParts(home, load_config(home), extensions_of(ctx))
        content = examine(archive, parts, owners)
        unknown = [name for name in kinds if kinds[name] and name not in (*KINDS, *parts.stores)]
        if not as_json:
            _show_content(file, content, kinds, parts)
        if dry_run:
            if as_json:
                print_document({"records": _by_kind(content.counts, kinds), "hash": content.hash})
            finish(ctx, [f"{name} would be left out: {absence(parts, name)}" for name in unknown])
            return
        if not has_yes():
            confirm("Import this?")
            keep_origins = keep_origins or click.confirm(
                "Is it your own export, which nobody else could change? Then origins are kept as they are in it, and its "
                "notes stand in your prompts as before",
                err=as_json,
            )
        with (
            open_memory(home_of(ctx)) as memory,
            memory.sessions.vectors_later(),
            progress_bar("importing", "records") as bar,
        ):
            task = bar.add_task("", total=sum(archive.manifest.counts.values()))
            done = import_archive(
                memory, archive, owners, keep_origins=keep_origins, on_record=lambda: bar.advance(task)
            )
            bar.stop()
            here = describe_home(memory, owners).hash
            problems = memory.problems()
    if as_json:
        print_document(
            {
                "records": _by_kind(content.counts, kinds),
                "imported": _by_kind(done.imported, kinds),
                "present": _by_kind(done.present, kinds),
                "left_out": done.left_out,
                "problems": done.problems,
                "hash": here,
                "equal": here == content.hash,
            }
        )
    else:
        _show_result(done, content.hash, here, kinds, parts, keep_origins=keep_origins)
    left = [f"{name} were left out: {absence(parts, name)}" for name in unknown]
    finish(ctx, [*done.problems, *left, *problems], failed=bool(done.problems))


def chosen_users(users: Sequence[str]) -> set[str] | None:
    """Return the owners that the options name; None for all. Raises `SessionError` for a text that is no user."""
    if not users:
        return None
    for user in users:
        if user != HOME_USER:
            parse_outside_id(user)
    return {"" if user == HOME_USER else user for user in users}


def _document(manifest: Manifest, file: Path | None) -> dict[str, object]:
    return {
        "file": None if file is None else str(file),
        "records": _by_kind(manifest.counts, manifest.counts),
        "hash": manifest.hash,
        "left_out": list(manifest.left_out),
    }


def _by_kind(counts: Mapping[str, int], kinds: Iterable[str]) -> dict[str, int]:
    return {kind: counts[kind] for kind in kinds}


def _counts(counts: Mapping[str, int], kinds: Iterable[str], parts: HomeParts) -> str:
    return ", ".join(counted(counts[kind], *_nouns(kind, parts)) for kind in kinds)


def _nouns(kind: str, parts: HomeParts) -> tuple[str, ...]:
    """Return the noun of a kind in the singular, and in the plural if that is no regular one."""
    if kind in _NOUNS:
        return _NOUNS[kind]
    part = parts.known.get(kind)
    return (part.noun if part else f"record of {kind}", kind if part else f"records of {kind}")


def _show_content(file: Path, content: ArchiveContent, kinds: Iterable[str], parts: HomeParts) -> None:
    click.echo(printable(f"{file}: {_counts(content.counts, kinds, parts)}"))
    if others := [f"{user} ({count})" for user, count in content.users.items() if user]:
        click.echo(hanging(f"sessions of other users: {', '.join(others)}"))
    for place, text, origin in content.entries:
        source = ORIGIN_NAMES.get(origin, origin)
        click.echo(
            f"  {printable(place)} (from {source}): " + escape_hidden(redact(text)).replace("\n", "\n    ")
        )
    if content.more:
        click.echo(f"  and {content.more:,} more")


def _show_result(
    done: HomeImport, archived: str, here: str, kinds: Iterable[str], parts: HomeParts, *, keep_origins: bool
) -> None:
    imported = [counted(done.imported[kind], *_nouns(kind, parts)) for kind in kinds if done.imported[kind]]
    present = sum(done.present.values())
    click.echo(
        f"{', '.join(imported) or 'nothing new'} imported"
        + (f" ({counted(done.imported['entries'], 'note')})" if done.imported["entries"] else "")
        + (f", {present:,} here already" if present else "")
    )
    for sentence in done.left_out:
        click.echo(hanging(f"left out: {sentence}"))
    if done.imported and not keep_origins:
        click.echo(hanging("notes and skills of the archive wait for you: hermes-memory review"))
    same = (
        "that of the archive"
        if here == archived
        else f"the archive has {archived[:16]}, this home has more or other"
    )
    click.echo(f"content hash: {here} ({same})")
