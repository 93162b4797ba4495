"""`hermes-memory claw`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import click

from hermes_core import open_memory
from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.options import dry_run_option
from hermes_core.cli.output import (
    finish,
    print_document,
    print_done,
    print_result,
    print_styled,
    print_table,
    wants_json,
    warn,
)
from hermes_core.kit import printable, redact
from hermes_core.kit.cli import confirm, yes_option
from hermes_core.safety.terminal import escape_hidden
from hermes_memory_openclaw.migration import (
    MigrationOptions,
    MigrationPlan,
    MigrationReport,
    Preset,
    SkillConflict,
    counts_of,
    one_line,
)
from hermes_memory_openclaw.plan import make_plan
from hermes_memory_openclaw.source import (
    FOLDERS,
    clean_up,
    find_source,
    plan_cleanup,
    read_tree,
    running_warnings,
)
from hermes_memory_openclaw.target_home import apply_plan, migrations_folder, new_entries, read_home

STYLES = {"migrated": "green", "archived": "cyan", "skipped": "dim", "conflict": "yellow", "error": "red"}

source_option = click.option(
    "--source",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"OpenClaw's folder, or one workspace (default: the first of {', '.join(f'~/{name}' for name in FOLDERS)}).",
)


@click.group(cls=Group)
def claw() -> None:
    """Move over from OpenClaw, and move its folder aside afterwards."""


@claw.command()
@source_option
@dry_run_option
@click.option(
    "--preset",
    type=click.Choice(get_args(Preset)),
    default="full",
    show_default=True,
    help="full: everything, secrets only with --migrate-secrets; user-data: never secrets.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file or secret that is here and differs.")
@click.option(
    "--migrate-secrets", is_flag=True, help="Take along the few secrets that are on the allow list."
)
@click.option(
    "--workspace-target",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Copy AGENTS.md into this workspace (an absolute path).",
)
@click.option(
    "--skill-conflict",
    type=click.Choice(get_args(SkillConflict)),
    default="skip",
    show_default=True,
    help="What to do when a skill of that name was imported before and differs.",
)
@click.option("--no-backup", is_flag=True, help="Do not zip the home first.")
@yes_option
@click.pass_context
def migrate(
    ctx: click.Context,
    source: Path | None,
    dry_run: bool,
    preset: Preset,
    overwrite: bool,
    migrate_secrets: bool,
    workspace_target: Path | None,
    skill_conflict: SkillConflict,
    no_backup: bool,
) -> None:
    """Bring OpenClaw's memory, identity and skills over: show what would happen, ask, then do it.

    MEMORY.md and the daily notes become entries of MEMORY.md, USER.md entries of USER.md, newest notes first; what has
    no room is kept for session_search. SOUL.md and skills go into place, the rest is archived for you to look at.
    OpenClaw's folder is never changed, and doing it twice changes nothing more. The new entries are shown, and your yes
    (or --yes) confirms them: they stand in the prompt of every later session.
    """
    options = _options(preset, overwrite, migrate_secrets, workspace_target, skill_conflict)
    tree = read_tree(source or _found())
    with open_memory(home_of(ctx)) as memory:
        plan = make_plan(tree, read_home(memory, options), options)
        now = datetime.now(UTC).astimezone()
        preview = MigrationReport(plan, None, now, executed=False)
        if not wants_json():
            _show(preview)
        _show_notes(plan, err=wants_json())
        warn([*running_warnings(), *plan.warnings])
        if dry_run or not plan.changes:
            errors = _errors(preview)
            nothing = "nothing to migrate: " + ("see the errors" if errors else "all of it is here already")
            _finish(preview, "" if plan.changes else nothing)
            finish(ctx, [*errors, *memory.problems()], failed=bool(errors))
            return
        confirm("Do this now?")
        report = apply_plan(plan, memory, now, backup=not no_backup, confirmed=True)
        memory.flush()
        problems = memory.problems()
    _finish(report, f"done; report, archive and backup: {report.folder}")
    failed = _errors(report)
    finish(ctx, [*failed, *problems], failed=bool(failed))


@claw.command()
@source_option
@dry_run_option
@yes_option
@click.pass_context
def cleanup(ctx: click.Context, source: Path | None, dry_run: bool) -> None:
    """Rename OpenClaw's folders to NAME.pre-migration, so that nothing reads or writes them by mistake."""
    moves = plan_cleanup(Path.home(), source, datetime.now(UTC).astimezone().date())
    if not moves:
        print_done("Nothing to clean up: there is no folder of OpenClaw's.", renamed={})
        return
    renamed = {str(move.source): move.target.name for move in moves}
    if dry_run or not wants_json():
        facts = {"message": "dry run: nothing is renamed", "renamed": renamed}
        print_result(facts, lambda: print_table("", ("folder", "becomes"), list(renamed.items()), ""))
    warn(running_warnings())
    if not any(migrations_folder(home_of(ctx)).glob("*/report.json")):
        warn(["nothing was migrated from OpenClaw into this home yet: hermes-memory claw migrate"])
    if dry_run:
        return
    confirm("Rename now?")
    clean_up(moves)
    print_done(f"{len(moves)} renamed; renaming back undoes it", renamed=renamed)


def _options(
    preset: Preset, overwrite: bool, secrets: bool, target: Path | None, skills: SkillConflict
) -> MigrationOptions:
    if preset == "user-data" and secrets:
        raise click.UsageError("--preset user-data never takes secrets: use --preset full --migrate-secrets")
    if target is not None and not target.is_absolute():
        raise click.UsageError(f"--workspace-target must be an absolute path, is {str(target)!r}")
    return MigrationOptions(preset, overwrite, secrets, target, skills)


def _found() -> Path:
    found = find_source(Path.home())
    if found is None:
        looked = ", ".join(str(Path.home() / name) for name in FOLDERS)
        raise Failure(f"no folder of OpenClaw's was found (looked at {looked}); name it with --source DIR")
    return found


def _show(report: MigrationReport) -> None:
    """Print the preview: an item a line, then the counts."""
    print_styled((printable(f"From {report.plan.source} to {report.plan.home}"), "bold"))
    for item in report.plan.items:
        counts = f" ({counts_of(item)})" if counts_of(item) else ""
        to = f" to {item.destination}" if item.destination else ""
        print_styled(
            (f"{item.status:9} ", STYLES[item.status]),
            (f"{item.kind}: ", "bold"),
            printable(one_line(f"{item.source}{to}{counts}")),
            (f"; {printable(item.reason)}" if item.reason else "", "dim"),
        )
    click.echo(_counts(report))


def _show_notes(plan: MigrationPlan, *, err: bool) -> None:
    """Print each entry that comes into the notes, because the person's yes confirms exactly these texts."""
    entries = new_entries(plan)
    if entries:
        click.echo("These entries come into your notes, and your yes confirms them:", err=err)
    for target, entry in entries:
        lines = escape_hidden(redact(entry)).replace("\n", "\n    ")
        waits = (
            "" if redact(entry) == entry else " (waits for hermes-memory review, because of the secret in it)"
        )
        click.echo(f"  {target}: {lines}{waits}", err=err)


def _finish(report: MigrationReport, text: str) -> None:
    if wants_json():
        print_document(report.to_dict())
        return
    if report.executed:
        click.echo(_counts(report))
        for step in report.next_steps():
            click.echo(printable(f"- {step}"))
    if text:
        click.echo(printable(text))


def _errors(report: MigrationReport) -> list[str]:
    """Return a sentence for each item that failed."""
    return [
        f"{item.source} is left behind: {item.reason}" for item in report.plan.items if item.status == "error"
    ]


def _counts(report: MigrationReport) -> str:
    entries = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in report.entries().items())
    items = ", ".join(f"{count} {status}" for status, count in report.plan.summary.items())
    return f"items: {items}" + (f"; entries: {entries}" if entries else "")
