"""`hermes-memory forget`: delete all that is stored of one user."""

from __future__ import annotations

import click

from hermes_core.actions.people import forget_person, report_counts, report_sentences
from hermes_core.cli import home_of
from hermes_core.cli.output import finish, json_option, print_document, warn
from hermes_core.forget import ForgetReport, forget_user
from hermes_core.memory import open_memory
from hermes_core.safety.terminal import printable


@click.command()
@click.argument("user", metavar="USER")
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def forget(ctx: click.Context, user: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete all that the stores hold of USER, as telegram:42, and ask the provider to forget it.

    That is: the user's sessions with all messages, what waits for the provider, the user's own notes and their history.
    The report says what this program can't delete.
    """
    with open_memory(home_of(ctx)) as memory:
        report = forget_user(memory, user, dry_run=True)
        if not dry_run:
            if not yes:
                click.confirm(f"Delete {report_counts(report)} of {user} for good?", abort=True, err=as_json)
            report, late = forget_person(memory, user)
            warn(filter(None, [late]))
        problems = memory.problems()
    if as_json:
        print_document(report)
    else:
        _show(report, dry_run=dry_run)
    finish(ctx, problems)


def _show(report: ForgetReport, *, dry_run: bool) -> None:
    if dry_run:
        click.echo(printable(f"{report_counts(report)} would be deleted"))
        for sentence in report.remaining:
            click.echo(printable(f"would not be deleted: {sentence}"))
        return
    for sentence in report_sentences(report):
        click.echo(printable(sentence))
