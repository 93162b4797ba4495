"""`hermes-memory capture`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from hermes_core.cli import Failure, Group, extensions_of
from hermes_core.cli.options import dry_run_option
from hermes_core.cli.output import finish, print_done, print_result, print_table
from hermes_core.kit.cli import command_home
from hermes_core.packages import install_remedy
from hermes_core.safety.terminal import hanging
from hermes_memory_capture.installs import Install, Installs
from hermes_memory_capture.programs import PROGRAMS, Program
from hermes_memory_capture.status import examine_home

Function = TypeVar("Function", bound=Callable[..., Any])

program_argument = click.argument("program", type=click.Choice(list(PROGRAMS)))


def project_option(*, exists: bool) -> Callable[[Function], Function]:
    """Return the decorator of the option `--project`. The folder of a project that is gone has no hooks to install."""
    return click.option(
        "--project",
        metavar="DIR",
        type=click.Path(exists=exists, file_okay=False, resolve_path=True, path_type=Path),
        help="Only for the project in this folder; default: for all projects of this account.",
    )


@click.group(cls=Group)
def capture() -> None:
    """Take the sessions of coding agents in as they happen, and give these agents recall."""


@capture.command()
@program_argument
@project_option(exists=True)
@dry_run_option
@click.pass_context
def install(ctx: click.Context, program: str, project: Path | None, dry_run: bool) -> None:
    """Add the hooks to the settings of PROGRAM. All that stands there stays as it is."""
    chosen = PROGRAMS[program]
    _require_format(ctx, chosen)
    installs = Installs(command_home(ctx).path)
    if dry_run:
        file, text = installs.planned(chosen, project)
        _print_plan(program, file, text)
        return
    done = installs.install(chosen, project)
    text = f"the hooks of {chosen.title} are in {done.file!r}; a session that runs already does not know them"
    print_done(text, program=program, file=done.file)
    remarks = [chosen.remark]
    if os.name == "nt":
        remarks.append("recall needs Unix sockets: on Windows sessions are captured, and get no recall")
    for remark in filter(None, remarks):
        click.secho(f"note: {hanging(remark)}", fg="yellow", err=True)


@capture.command()
@program_argument
@project_option(exists=False)
@dry_run_option
@click.pass_context
def uninstall(ctx: click.Context, program: str, project: Path | None, dry_run: bool) -> None:
    """Take out of the settings of PROGRAM what `install` added. What was captured stays in memory."""
    installs = Installs(command_home(ctx).path)
    wanted = "" if project is None else str(project)
    found = [one for one in installs.all() if (one.program, one.project) == (program, wanted)]
    if not found:
        others = sorted(map(_place, installs.all())) or ["nothing"]
        raise Failure(f"the hooks of {program!r} are not installed there; installed: {', '.join(others)}")
    if dry_run:
        _print_plan(program, Path(found[0].file), installs.text_without(found[0]))
        return
    installs.uninstall(found[0])
    print_done(f"the hooks are out of {found[0].file!r}", program=program, file=found[0].file)


@capture.command()
@click.pass_context
def status(ctx: click.Context) -> None:
    """Show what is captured, what was missed and since when, and why a message got no recall."""
    findings = list(examine_home(command_home(ctx).path, trial=False))
    rows = [(one.what, one.state, one.detail, one.remedy) for one in findings]
    print_result(
        [finding.to_dict() for finding in findings],
        lambda: print_table(
            "capture",
            ("what", "state", "detail", "what to do"),
            rows,
            "Nothing is captured: hermes-memory capture install PROGRAM",
        ),
    )
    finish(ctx, [f"{one.what}: {one.detail}" for one in findings if one.failed])


def _place(one: Install) -> str:
    return f"{one.program} --project {one.project!r}" if one.project else one.program


def _require_format(ctx: click.Context, program: Program) -> None:
    if program.source not in extensions_of(ctx).importers:
        raise Failure(
            f"nothing reads transcripts of {program.title}: the extension 'importers' is not active; "
            + install_remedy("hermes-memory-importers")
        )


def _print_plan(program: str, file: Path, text: str) -> None:
    """Print the change of a file of settings as a diff."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    lines = (before.splitlines(keepends=True), text.splitlines(keepends=True))
    diff = "".join(difflib.unified_diff(*lines, str(file), str(file)))
    print_done(diff or f"{str(file)!r} stays as it is", program=program, file=str(file))
