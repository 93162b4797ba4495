"""`hermes-memory backup` and `hermes-memory restore`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hermes_core import open_memory
from hermes_core.cli import Failure, home_of
from hermes_core.cli.output import finish, moment, print_result, progress_bar, wants_json
from hermes_core.config import load_config
from hermes_core.kit import printable
from hermes_core.kit.cli import confirm, has_yes, yes_option
from hermes_core.loader.parts import HomeParts
from hermes_core.packages import program_version
from hermes_core.safety.terminal import counted, hanging
from hermes_memory_archive.backup import BackupReport, opened_backup, outside_paths
from hermes_memory_archive.restore import RestoreReport, holds_files, restore_backup
from hermes_memory_archive.schedule import back_up_now


@click.command()
@click.argument("file", metavar="FILE", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--with-secrets", is_flag=True, help="Include .env and other files with keys.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.pass_context
def backup(ctx: click.Context, file: Path | None, with_secrets: bool, force: bool) -> None:
    """Copy the home into one archive: databases, notes, origins, skills, settings, and what providers have elsewhere.

    Programs may write meanwhile: what was stored before the backup began is in it. It is checked after it is written:
    hashes, and each database. Without FILE it goes into the folder `backup.folder`, where the oldest ones are deleted;
    `backup.every` makes one by itself every so many hours. It holds no keys unless you ask for them.
    """
    home = home_of(ctx)
    if not home.path.is_dir():
        raise Failure(f"there is no home {str(home.path)!r}; nothing was backed up")
    with open_memory(home) as memory, progress_bar("copying", "files") as bar:
        task = bar.add_task("", total=None)
        report = back_up_now(
            home,
            memory.config,
            file,
            secrets=with_secrets,
            force=force,
            outside=outside_paths(memory),
            on_file=lambda: bar.advance(task),
            program=program_version(),
        )
        problems = memory.problems()
    print_result(report, lambda: _show_backup(report))
    finish(ctx, problems)


def _show_backup(report: BackupReport) -> None:
    size = f"{report.bytes / 2**20:,.1f} MiB"
    files = f"{counted(report.files, 'file')} ({counted(report.databases, 'database')})"
    click.echo(printable(f"{files}, {size}, checked: {report.path}"))
    for sentence in report.left_out:
        click.echo(hanging(f"left out: {sentence}"))


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="If the home is not empty, move what is there aside.")
@click.option("--outside", is_flag=True, help="Put files from outside the home back where they were, too.")
@yes_option
@click.pass_context
def restore(ctx: click.Context, file: Path, force: bool, outside: bool) -> None:
    """Put the home back as the backup FILE has it, and keep what is there in a folder beside it.

    Stop every program that uses the home before. The backup is checked whole first. A backup holds settings and code of
    plugins, which the next program runs: restore only a backup of your own. Keys that are here stay, if it has none.
    """
    home = home_of(ctx)
    with opened_backup(file) as (_, content):
        files, places = len(content.files), sorted(set(content.outside.values()))
        made = f"made {moment(content.created_at)} of {content.home}"
    if not wants_json():
        click.echo(printable(f"{file}: {counted(files, 'file')}, {made}"))
        for place in places:
            click.echo(printable(f"  from outside the home: {place}"))
    confirmed = places if outside else []
    if not has_yes():
        if holds_files(home) and not force and sys.stdin.isatty():
            confirm(f"{home.path} is not empty. Move what is there aside?")
            force = True
        confirmed = [
            place
            for place in confirmed
            if click.confirm(
                printable(f"Put files back to {place}, and move what is there aside?"), err=wants_json()
            )
        ]
        confirm(f"Restore it into {home.path}?")
    with progress_bar("restoring", "files") as bar:
        task = bar.add_task("", total=files)
        report = restore_backup(home, file, force=force, outside=confirmed, on_file=lambda: bar.advance(task))
    problems = HomeParts(home, load_config(home)).problems()
    print_result(report, lambda: _show_restored(report))
    finish(ctx, problems)


def _show_restored(report: RestoreReport) -> None:
    click.echo(printable(f"{counted(report.files, 'file')} restored into {report.home}"))
    if report.aside is not None:
        click.echo(printable(f"what was there is in {report.aside}; delete it when nothing is missing"))
    if report.local_secrets:
        click.echo(
            hanging(f"stays as it was here, since the backup has none: {', '.join(report.local_secrets)}")
        )
    for name in report.unmerged_secrets:
        click.echo(
            hanging(f"{name} is as the backup has it, without its secrets: they are in {report.aside}")
        )
    for place in report.put_back:
        click.echo(printable(f"put back, outside the home: {place}"))
    for folder, place in report.outside.items():
        click.echo(printable(f"{folder} belongs to {place}: put it back by hand, or restore with --outside"))
    click.echo("test it: hermes-memory doctor --fix")
