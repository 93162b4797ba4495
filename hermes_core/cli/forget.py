"""`hermes-memory forget`: delete all that is stored of one user."""

from __future__ import annotations

import click

from hermes_core.actions.people import FORGET_TIMEOUT_S, forget_person, report_counts, report_sentences
from hermes_core.cli.options import dry_run_option, with_memory
from hermes_core.cli.output import finish, print_result, warn
from hermes_core.forget import ForgetReport, forget_user
from hermes_core.kit.cli import confirm, yes_option
from hermes_core.memory import Memory
from hermes_core.safety.terminal import printable


@click.command()
@click.argument("user", metavar="USER")
@dry_run_option
@click.option("--no-wait", is_flag=True, help="Leave the request to the provider in the outbox.")
@yes_option
@with_memory(provider=None, begins=False)
def forget(memory: Memory, user: str, dry_run: bool, no_wait: bool) -> None:
    """Delete all that the stores hold of USER, as telegram:42, and let the provider forget it.

    That is: the user's sessions with all messages, what waits for the provider, the user's own notes and their history,
    and what the provider stored and learned of them. The command waits for the provider for up to two minutes. The report
    says what this program can't delete.

    Exits with 0 only if nothing is left where it promises to delete, else with 3.
    """
    report = forget_user(memory, user, dry_run=True)
    if not dry_run:
        confirm(f"Delete {report_counts(report)} of {user} for good?")
        report, late = forget_person(memory, user, timeout=0 if no_wait else FORGET_TIMEOUT_S)
        warn(filter(None, [late]))
    print_result(report, lambda: _show(report, dry_run=dry_run))
    if not (dry_run or report.complete):
        finish(click.get_current_context(), [f"{user} is not forgotten everywhere", *memory.problems()])


def _show(report: ForgetReport, *, dry_run: bool) -> None:
    if dry_run:
        click.echo(printable(f"{report_counts(report)} would be deleted"))
        for sentence in report.remaining:
            click.echo(printable(f"would not be deleted: {sentence}"))
        return
    for sentence in report_sentences(report):
        click.echo(printable(sentence))
