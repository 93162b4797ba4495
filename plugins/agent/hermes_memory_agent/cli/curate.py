"""The command `hermes-memory memory curate`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from functools import partial
from typing import cast, get_args

import click

from hermes_core import MemoryStore, open_memory
from hermes_core.actions.notes import deliver, session_of_user
from hermes_core.cli import home_of
from hermes_core.cli.memory import user_option
from hermes_core.cli.output import finish, json_option, print_document, warn
from hermes_core.contract.values import MemoryTarget, Session
from hermes_core.errors import HermesError
from hermes_core.kit import printable
from hermes_core.safety.terminal import hanging
from hermes_memory_agent.configured import ConfiguredModels
from hermes_memory_agent.curator import accept, propose
from hermes_memory_agent.model import ChatModel


@dataclass(slots=True)
class CurationReport:
    """The result of curating one file; `refused` gives the reason if nothing could be done."""

    target: MemoryTarget
    entries: list[str] = field(default_factory=list)
    diff: str = ""
    applied: bool = False
    refused: str = ""


@click.command()
@click.option(
    "--target", type=click.Choice(["all", *get_args(MemoryTarget)]), default="all", help="Which file."
)
@click.option("--yes", is_flag=True, help="Apply the proposal without asking.")
@click.option("--apply", "apply_now", is_flag=True, hidden=True, help="The same as --yes.")
@user_option
@json_option
@click.pass_context
def curate(ctx: click.Context, target: str, yes: bool, apply_now: bool, user: str, as_json: bool) -> None:
    """Let the model propose a shorter version: duplicates merged, stale entries dropped, contradictions shown.

    Nothing is written before you agree, give --yes, or set curator.auto. An applied proposal can be undone.
    """
    on_retry = partial(click.secho, dim=True, err=True)
    with open_memory(home_of(ctx)) as opened, ConfiguredModels(opened, on_retry) as models:
        session = session_of_user(opened, user)
        targets = opened.curated.enabled_targets if target == "all" else (cast(MemoryTarget, target),)
        agreed = yes or apply_now or opened.config.curator.auto
        model, store = models.auxiliary or models.model, opened.curated.of(session)
        reports = [CurationReport(name) for name in targets]
        for report in reports:
            _curate(report, model, store, session, agreed=agreed, quiet=as_json)
        late = deliver(opened, session) if any(report.applied for report in reports) else ""
        problems = opened.problems(session)
    if as_json:
        print_document(reports[0] if len(reports) == 1 else reports)
    warn(filter(None, [late]))
    finish(ctx, problems, failed=any(report.refused for report in reports))


def _curate(
    report: CurationReport,
    model: ChatModel,
    store: MemoryStore,
    session: Session,
    *,
    agreed: bool,
    quiet: bool,
) -> None:
    """Propose a version, show it, ask unless the person has agreed, and apply it."""
    try:
        proposal = propose(model, store, report.target)
        report.entries, report.diff = list(proposal.after), proposal.diff()
        if not quiet:
            click.echo(printable(report.diff) or f"{report.target}: nothing to curate")
        if not proposal.changes_anything:
            return
        proposal.require_sound()
        by_person = not agreed and not quiet and click.confirm("apply?", default=False)
        if agreed or by_person:
            result = accept(store, proposal, session, by_person=by_person)
            report.applied = True
            if not quiet:
                click.echo(f"{report.target}: {result['message']}{_undo_hint(store, session)}")
            warn(filter(None, [result.get("warning")]))
    except HermesError as exc:
        report.refused = str(exc)
        if not quiet:
            click.secho(f"error: {report.target}: {hanging(report.refused)}", fg="red", err=True)


def _undo_hint(store: MemoryStore, session: Session) -> str:
    """Return the command that undoes the last change; without id and user it could undo another file's or person's."""
    user = f" --user {shlex.quote(session.owner)}" if session.owner else ""
    changes = store.history(limit=1)
    return "".join(f" hermes-memory memory undo {change.id}{user} takes it back." for change in changes)
