"""`hermes-memory storage move` and `hermes-memory storage unmark`."""

from __future__ import annotations

import os

import click

from hermes_core.cli import extensions_of, home_of
from hermes_core.cli.output import (
    finish,
    print_document,
    print_done,
    print_result,
    print_table,
    progress_bar,
    wants_json,
)
from hermes_core.config import load_config
from hermes_core.kit import printable
from hermes_core.kit.cli import confirm, yes_option
from hermes_core.loader.parts import HomeParts
from hermes_core.safety.terminal import counted, hanging
from hermes_memory_postgresql.storage_move import (
    StorageMove,
    StorageMovePlan,
    StorageMoveReceipt,
    save_storage_receipt,
    unmark_store,
)

PASSES = 3
"""Times that a move reads each row: to copy it, and to compare it in both stores."""


@click.command()
@click.option("--to", "target", metavar="URL|files", required=True, help="Address of a server, or `files`.")
@click.option("--schema", default="", help="Schema on the server (default: storage.schema).")
@click.option("--wait", is_flag=True, help="Wait until no other program uses the sessions.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@yes_option
@click.pass_context
def move(ctx: click.Context, target: str, schema: str, wait: bool, dry_run: bool) -> None:
    """Move sessions, outbox and notes to a server, or back into files of the home, and let config.yaml name it.

    Stop every program that uses them before. All rows are copied with their ids, then both stores are compared by
    count and hash, and only then config.yaml is changed. If the command is killed, run it again: it goes on where it was.
    The source keeps its rows, and refuses writes from then on. The password of the server is read from
    HERMES_STORAGE_PASSWORD in .env or from the file of PGPASSFILE; it does not belong into the address.
    """
    home = home_of(ctx)
    with progress_bar("moving", "rows") as bar:
        task = bar.add_task("", total=None)
        with StorageMove(home, target, schema=schema, progress=lambda _step, n: bar.advance(task, n)) as work:
            plan = work.plan()
            if dry_run or not wants_json():
                _show_plan(plan)
            if dry_run:
                return
            bar.stop()
            confirm(f"Move to {plan.target}?")
            bar.start()
            if wait and (users := work.other_programs()):
                click.echo(printable(f"waiting: {users}"), err=True)
                work.wait()
            bar.update(task, total=PASSES * sum(plan.rows.values()))
            receipt = work.run(plan)
            path = save_storage_receipt(home, receipt)
            bar.stop()
            print_result(receipt, lambda: _show_receipt(receipt, os.fspath(path)))
    # The parts of extensions stay files of the home; those whose extension is missing are named.
    parts = HomeParts(home, load_config(home), extensions_of(ctx))
    finish(ctx, [*receipt.problems, *parts.problems()])


@click.command()
@yes_option
@click.pass_context
def unmark(ctx: click.Context) -> None:
    """Go on with the store that config.yaml names, although it was moved, or a move of it was stopped.

    What was stored in the other store since is not in this one. A half-filled target stays where it is: delete it.
    """
    confirm("Let programs write into the store that config.yaml names?")
    mark = unmark_store(home_of(ctx))
    print_done("The store had no mark." if mark is None else f"given up: the move to {mark.other}")


def _show_plan(plan: StorageMovePlan) -> None:
    if wants_json():
        print_document(plan)
        return
    click.echo(printable(f"from {plan.source}\nto {plan.target}"))
    rows = [(name, f"{count:,}") for name, count in plan.rows.items() if count]
    print_table("", ("table", "rows"), rows, "Nothing is stored yet.")
    if plan.goes_on:
        click.echo(f"an earlier run was stopped; {counted(plan.present, 'row')} are there already")
    if plan.aside:
        click.echo(printable(f"an older store that is there is kept as {plan.aside}"))


def _show_receipt(receipt: StorageMoveReceipt, path: str) -> None:
    total = counted(sum(receipt.rows.values()), "row")
    click.echo(
        f"{counted(receipt.sessions, 'session')}, {counted(receipt.messages, 'message')}, {total} in all; "
        f"{receipt.copied:,} copied in this run, {receipt.seconds:,.1f} s"
    )
    click.echo(f"hash of the source: {receipt.source_hash}")
    click.echo(f"hash of the target: {receipt.target_hash}")
    click.echo(hanging(f"kept, and refuses writes: {receipt.source}"))
    if receipt.switched:
        click.echo(printable(f"sessions: {receipt.target}, from the next start on"))
    click.echo(printable(f"receipt: {path}"))
