"""`hermes-memory forget`: delete all that is stored of one user."""

from __future__ import annotations

import click

from hermes_core.actions.people import forget_person, report_counts, report_sentences
from hermes_core.cli.options import dry_run_option, with_memory
from hermes_core.cli.output import print_result, warn
from hermes_core.forget import ForgetReport, forget_user
from hermes_core.kit.cli import confirm, yes_option
from hermes_core.memory import Memory
from hermes_core.safety.terminal import printable


@click.command()
@click.argument("user", metavar="USER")
@dry_run_option
@yes_option
@with_memory(provider=None)
def forget(memory: Memory, user: str, dry_run: bool) -> None:
    """Delete all that the stores hold of USER, as telegram:42, and ask the provider to forget it.

    That is: the user's sessions with all messages, what waits for the provider, the user's own notes and their history.
    The report says what this program can't delete.
    """
    report = forget_user(memory, user, dry_run=True)
    if not dry_run:
        confirm(f"Delete {report_counts(report)} of {user} for good?")
        report, late = forget_person(memory, user)
        warn(filter(None, [late]))
    print_result(report, lambda: _show(report, dry_run=dry_run))


def _show(report: ForgetReport, *, dry_run: bool) -> None:
    if dry_run:
        click.echo(printable(f"{report_counts(report)} would be deleted"))
        for sentence in report.remaining:
            click.echo(printable(f"would not be deleted: {sentence}"))
        return
    for sentence in report_sentences(report):
        click.echo(printable(sentence))
