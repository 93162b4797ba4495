"""`hermes-memory memory curate`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import click

from hermes_core.cli import home_of
from hermes_core.cli.output import finish, json_option, print_json, warn
from hermes_core.cli.speaker import deliver, speaker, user_option
from hermes_core.cli.voice import Voice
from hermes_core.contract.values import MemoryTarget, Session
from hermes_core.curated.store import TARGETS, MemoryStore
from hermes_core.errors import HermesError
from hermes_core.memory import open_memory
from hermes_core.safety.terminal import hanging, printable

if TYPE_CHECKING:
    from hermes_core.agent import ChatModel


@dataclass(slots=True)
class Report:
    """What came of one file; `refused` says why nothing could."""

    target: MemoryTarget
    entries: list[str] = field(default_factory=list)
    diff: str = ""
    applied: bool = False
    refused: str = ""


@click.command()
@click.option("--target", type=click.Choice(["all", *TARGETS]), default="all", help="Which file.")
@click.option("--apply", "apply_now", is_flag=True, help="Apply the proposal without asking.")
@user_option
@json_option
@click.pass_context
def curate(ctx: click.Context, target: str, apply_now: bool, user: str, as_json: bool) -> None:
    """Let the model propose a tidier version: duplicates merged, what is stale dropped, contradictions shown.

    Nothing is written before you agree, give --apply, or set curator.auto. What was applied can be undone.
    """
    from hermes_core.agent import ConfiguredModels  # no other command of this group needs an agent

    with open_memory(home_of(ctx)) as memory, ConfiguredModels(memory, Voice().aside) as models:
        who = speaker(memory, user)
        enabled = memory.curated.enabled_targets
        asked = enabled if target == "all" else (cast(MemoryTarget, target),)
        agreed = apply_now or memory.config.curator.auto
        model, store = models.auxiliary or models.model, memory.curated.of(who)
        reports = [Report(one) for one in asked]
        for report in reports:
            _curate(report, model, store, who, agreed=agreed, quiet=as_json)
        late = deliver(memory, who) if any(report.applied for report in reports) else ""
        problems = memory.problems(who)
    if as_json:
        print_json(reports[0] if len(reports) == 1 else reports)
    warn(filter(None, [late]))
    finish(ctx, problems, failed=any(report.refused for report in reports))


def _curate(
    report: Report, model: ChatModel, store: MemoryStore, who: Session, *, agreed: bool, quiet: bool
) -> None:
    """Propose, show, ask where nobody has agreed yet, and apply."""
    from hermes_core.agent.curator import accept, propose

    try:
        found = propose(model, store, report.target)
        report.entries, report.diff = list(found.after), found.diff()
        if not quiet:
            click.echo(printable(report.diff) or f"{report.target}: nothing to tidy")
        if not found.changes_anything:
            return
        found.require_sound()
        if agreed or (not quiet and click.confirm("apply?", default=False)):
            result = accept(store, found, who)
            report.applied = True
            if not quiet:
                click.echo(f"{report.target}: {result['message']}{_way_back(store, who)}")
            warn(filter(None, [result.get("warning")]))
    except HermesError as exc:
        report.refused = str(exc)
        if not quiet:
            click.secho(f"error: {report.target}: {hanging(report.refused)}", fg="red", err=True)


def _way_back(store: MemoryStore, who: Session) -> str:
    """What undoes the last change of a store; without the id and the user it may be another file's, or another person's."""
    user = f" --user {shlex.quote(who.owner)}" if who.owner else ""
    return "".join(
        f" hermes-memory memory undo {change.id}{user} takes it back." for change in store.history(limit=1)
    )
