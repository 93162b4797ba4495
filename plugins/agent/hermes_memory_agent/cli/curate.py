"""The command `hermes-memory memory curate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import cast

import click

from hermes_core import Memory, Notes
from hermes_core.actions.notes import deliver
from hermes_core.cli.options import all_targets_option, with_memory
from hermes_core.cli.output import finish, print_document, wants_json, warn
from hermes_core.contract.values import MemoryTarget, Session
from hermes_core.errors import HermesError
from hermes_core.kit import printable
from hermes_core.kit.cli import has_yes, yes_option
from hermes_core.safety.terminal import hanging
from hermes_core.shell_words import shell_word
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
@all_targets_option
@yes_option
@click.option("--apply", "apply_now", is_flag=True, hidden=True, help="The same as --yes.")
@with_memory(provider=None, user=True)
def curate(opened: Memory, session: Session, target: str, apply_now: bool) -> None:
    """Let the model propose a shorter version: duplicates merged, stale entries dropped, contradictions shown.

    Nothing is written before you agree, give --yes, or set curator.auto. An applied proposal can be undone.
    """
    on_retry = partial(click.secho, dim=True, err=True)
    with ConfiguredModels(opened, on_retry) as models:
        targets = opened.curated.enabled_targets if target == "all" else (cast(MemoryTarget, target),)
        agreed = has_yes() or apply_now or opened.config.curator.auto
        model, store = models.auxiliary or models.model, opened.curated.of(session)
        reports = [CurationReport(name) for name in targets]
        for report in reports:
            _curate(report, model, store, session, agreed=agreed, quiet=wants_json())
    late = deliver(opened, session) if any(report.applied for report in reports) else ""
    if wants_json():
        print_document(reports[0] if len(reports) == 1 else reports)
    warn(filter(None, [late]))
    refused = any(report.refused for report in reports)
    finish(click.get_current_context(), opened.problems(session), failed=refused)


def _curate(
    report: CurationReport,
    model: ChatModel,
    store: Notes,
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


def _undo_hint(store: Notes, session: Session) -> str:
    """Return the command that undoes the last change; without id and user it could undo another file's or person's."""
    user = f" --user {shell_word(session.owner)}" if session.owner else ""
    changes = store.history(limit=1)
    return "".join(f" hermes-memory memory undo {change.id}{user} takes it back." for change in changes)
