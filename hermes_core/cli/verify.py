"""The command `hermes-memory verify`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing

import click
from msgspec import Struct, field

from hermes_core.cli import Failure
from hermes_core.cli.options import home_to_read
from hermes_core.cli.output import print_result
from hermes_core.config import load_config
from hermes_core.curated.history import NoteHistory
from hermes_core.errors import StorageError
from hermes_core.home import HermesHome
from hermes_core.kit.cli import OldNames
from hermes_core.safety.terminal import counted, printable
from hermes_core.sessions.home_store import open_sessions
from hermes_core.storage.inventory import lost_store


class VerifiedRecord(Struct, frozen=True):
    """Result of one record; `faults` is empty if it is whole.

    `readable` is False if the database is lost or damaged. `since` is the number of events by hash of `--hash`, for the
    hashes that an event of this record has.
    """

    record: str
    events: int
    head: str
    erased: int
    unchained: int
    faults: tuple[str, ...]
    readable: bool = True
    since: Mapping[str, int] = field(default_factory=dict)


@click.command()
@click.option("--accept", is_flag=True, help="Accept the history as it is; later checks begin here.")
@click.option(
    "--hash",
    "since",
    cls=OldNames,
    old=("--since",),
    metavar="HASH",
    multiple=True,
    help="Fail if no event has this hash, which an earlier run printed: in full or its first 16 digits.",
)
@click.pass_context
def verify(ctx: click.Context, accept: bool, since: tuple[str, ...]) -> None:
    """Check the record of notes, skills and confirmations: that no past event was changed, deleted or inserted.

    Exits with 1 and names each event that is not as it was recorded. That the newest events were deleted, or a whole
    record was made anew, shows only by a hash that was printed before: write it down elsewhere, and give it to --hash.
    """
    since = tuple(value.strip().lower() for value in since)
    for value in since:
        if not re.fullmatch("[0-9a-f]{16,64}", value):
            raise click.UsageError(f"{value!r} is no hash; give at least the 16 digits that verify printed")
    with home_to_read(ctx) as home:
        record = _verified(home, accept, since)
    print_result([record] if record is not None else [], lambda: _show(record))
    faults = [f"{record.record}: {fault}" for fault in record.faults] if record is not None else []
    faults += [
        f"no event has the hash {value!r}: events were deleted, or a record was made anew, after it was printed"
        for value in since
        if record is None or value not in record.since
    ]
    if faults:
        lines = [f"{counted(len(faults), 'fault')} in the record:", *faults]
        if record is not None and record.faults and record.readable:
            lines.append(
                "compare with a backup and restore what was changed, or accept what is there: "
                "hermes-memory verify --accept"
            )
        raise Failure("\n".join(lines))


def _verified(home: HermesHome, accept: bool, since: tuple[str, ...]) -> VerifiedRecord | None:
    """Return the result of the record of the home; None if nothing was recorded yet."""
    name, config = "notes", load_config(home)
    if not config.storage.url and (lost := lost_store(home.state_db)):
        return VerifiedRecord(name, 0, "", 0, 0, (str(lost),), readable=False)
    with closing(open_sessions(home, config)) as sessions:
        history = NoteHistory(sessions.database)
        try:
            report = history.verify()
            if report is not None and accept and report.faults:
                history.accept_history()
                click.echo(f"{name}: {counted(len(report.faults), 'fault')} accepted", err=True)
                report = history.verify()
        except StorageError as exc:
            return VerifiedRecord(name, 0, "", 0, 0, (str(exc),), readable=False)
    if report is None or not (report.events or report.faults):
        return None
    counts = {value: count for value in since if (count := report.events_since(value)) is not None}
    return VerifiedRecord(
        name, report.events, report.head, report.erased, report.unchained, report.faults, since=counts
    )


def _show(record: VerifiedRecord | None) -> None:
    if record is None:
        click.echo("Nothing was recorded yet.")
        return
    if not record.readable:
        click.echo(printable(f"{record.record}: can't be checked"))
        return
    state = counted(len(record.faults), "fault") if record.faults else "whole"
    head = f", hash {record.head[:16]}" if record.head else ""
    parts = [f"{counted(record.events, 'event')}, {state}{head}"]
    if record.unchained:
        parts.append(f"{counted(record.unchained, 'change')} from before the record can't be checked")
    if record.erased:
        parts.append(f"{counted(record.erased, 'event')} erased by prune")
    for value, count in record.since.items():
        parts.append(f"{counted(count, 'event')} since {value[:16]}")
        if count >= record.events:
            parts.append("the history was accepted since then, and what is older is not checked")
    click.echo(printable(f"{record.record}: {'; '.join(parts)}"))
