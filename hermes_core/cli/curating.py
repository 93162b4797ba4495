"""`hermes memory curate`."""

from __future__ import annotations

from typing import Any, cast

import click

from hermes_core.agent.configured import ConfiguredModels
from hermes_core.agent.curator import Proposal, accept, propose
from hermes_core.cli import home_of
from hermes_core.cli.output import json_option, print_json
from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.store import TARGETS
from hermes_core.errors import CuratedMemoryError
from hermes_core.kit.text import printable
from hermes_core.memory import Memory, open_memory


@click.command()
@click.option("--target", type=click.Choice(["all", *TARGETS]), default="all", help="Which file.")
@click.option("--apply", "apply_now", is_flag=True, help="Apply the proposal without asking.")
@json_option
@click.pass_context
def curate(ctx: click.Context, target: str, apply_now: bool, as_json: bool) -> None:
    """Let the model propose a tidier version: duplicates merged, what is stale dropped, contradictions shown.

    Nothing is written before you agree, give --apply, or set curator.auto. What was applied can be undone.
    """
    with open_memory(home_of(ctx)) as memory, ConfiguredModels(memory) as models:
        asked = memory.curated.enabled_targets if target == "all" else (cast(MemoryTarget, target),)
        model = models.auxiliary or models.model
        reports = [_curate(memory, propose(model, memory.curated, one), apply_now, as_json) for one in asked]
    if as_json:
        print_json(reports[0] if len(reports) == 1 else reports)


def _curate(memory: Memory, found: Proposal, apply_now: bool, as_json: bool) -> dict[str, Any]:
    if found.changes_anything and found.faults():
        raise CuratedMemoryError(f"the proposal was refused: {'; '.join(found.faults())}", "try again")
    if not as_json:
        click.echo(printable(found.diff()) or f"{found.target}: nothing to tidy")
    report = {"target": found.target, "entries": list(found.after), "diff": found.diff(), "applied": False}
    wanted = apply_now or memory.config.curator.auto
    if not found.changes_anything or not (wanted or (not as_json and click.confirm("apply?", default=False))):
        return report
    result = accept(memory.curated, found, memory.local_session)
    if not result.get("success"):
        raise CuratedMemoryError(f"the proposal was not applied: {result.get('error')}", "try again")
    return report | {"applied": True}
