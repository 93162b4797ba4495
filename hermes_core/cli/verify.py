"""The command `hermes-memory verify`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import click

from hermes_core.cli import Failure, home_of
from hermes_core.cli.output import json_option, print_document
from hermes_core.curated.store import MemoryStore
from hermes_core.home import HermesHome
from hermes_core.safety.terminal import counted, printable
from hermes_core.skills.store import SkillStore


@dataclass(frozen=True, slots=True)
class VerifiedRecord:
    """Result of one record; `faults` is empty if it is whole."""

    record: str
    events: int
    head: str
    erased: int
    unchained: int
    faults: tuple[str, ...]


@click.command()
@click.option("--accept", is_flag=True, help="Accept the history as it is; later checks begin here.")
@json_option
@click.pass_context
def verify(ctx: click.Context, accept: bool, as_json: bool) -> None:
    """Check the record of notes, skills and confirmations: that no past event was changed, deleted or inserted.

    Exits with 1 and names each event that is not as it was recorded. Write the printed hash down elsewhere to find out
    later if somebody replaced a whole record.
    """
    with ExitStack() as opened:
        stores = [(name, opened.enter_context(closing(store))) for name, store in _stores(home_of(ctx))]
        records = []
        for name, store in stores:
            report = store.verify()
            if report is None:
                continue
            if accept and report.faults:
                store.accept_history()
                click.echo(f"{name}: {counted(len(report.faults), 'fault')} accepted", err=True)
                report = store.verify() or report
            records.append(
                VerifiedRecord(
                    name, report.events, report.head, report.erased, report.unchained, report.faults
                )
            )
    if as_json:
        print_document(records)
    else:
        _show(records)
    if faults := [f"{record.record}: {fault}" for record in records for fault in record.faults]:
        raise Failure(
            "\n".join([f"{counted(len(faults), 'fault')} in the record:", *faults])
            + "\ncompare with a backup of the home and put its files in place, or accept what is there: "
            "hermes-memory verify --accept"
        )


def _stores(home: HermesHome) -> Iterator[tuple[str, MemoryStore | SkillStore]]:
    yield "notes", MemoryStore(home)
    yield "skills", SkillStore(home.skills)
    for folder in sorted((home.memories / "users").glob("*/skills")):
        yield f"skills of {folder.parent.name}", SkillStore(folder)


def _show(records: list[VerifiedRecord]) -> None:
    if not records:
        click.echo("nothing was recorded yet")
    for record in records:
        state = counted(len(record.faults), "fault") if record.faults else "whole"
        parts = [f"{counted(record.events, 'event')}, {state}, hash {record.head[:16]}"]
        if record.unchained:
            parts.append(f"{counted(record.unchained, 'change')} from before the record can't be checked")
        if record.erased:
            parts.append(f"{counted(record.erased, 'event')} erased by prune")
        click.echo(printable(f"{record.record}: {'; '.join(parts)}"))
