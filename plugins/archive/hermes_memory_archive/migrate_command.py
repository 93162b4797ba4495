"""`hermes-memory migrate`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from hermes_core import HermesHome, open_memory
from hermes_core.cli import Failure, home_of
from hermes_core.cli.output import finish, print_document, print_result, progress_bar, wants_json, warn
from hermes_core.kit import printable, redact
from hermes_core.kit.cli import confirm, yes_option
from hermes_core.safety.redact import redact_value
from hermes_core.safety.terminal import counted, hanging
from hermes_memory_archive.export_command import chosen_users, user_option
from hermes_memory_archive.provider_move import (
    MovePlan,
    MoveReceipt,
    ProviderMove,
    opened_provider,
    refuse_same_account,
    save_receipt,
    switch_provider,
)


@click.command()
@click.option(
    "--from", "source", metavar="PROVIDER", required=True, help="The provider that has the memories."
)
@click.option("--to", "target", metavar="PROVIDER", required=True, help="The provider that gets them.")
@click.option(
    "--from-home",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The home or profile folder with the settings of --from (default: this home), for two accounts of one provider.",
)
@user_option
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("--no-switch", is_flag=True, help="Leave memory.provider as it is.")
@click.option(
    "--accept-refused", is_flag=True, help="Choose the target also without the memories that it refuses."
)
@yes_option
@click.pass_context
def migrate(
    ctx: click.Context,
    source: str,
    target: str,
    from_home: Path | None,
    users: tuple[str, ...],
    dry_run: bool,
    no_switch: bool,
    accept_refused: bool,
) -> None:
    """Copy all memories from one provider to another, verify them by count and hash, and then choose the other one.

    The source is only read. If the command is killed, run it again: it goes on where it was. If a provider can't list or
    take memories, the stored turns and notes are sent to the target instead, and the receipt says so. The receipt is
    also kept in the folder `migration` of the home. Set the target up before: hermes-memory memory setup NAME.
    """
    home = home_of(ctx)
    origin = HermesHome.resolve(from_home) if from_home else home
    refuse_same_account(origin, source, home, target)
    with (
        open_memory(origin, provider="") as memory,
        opened_provider(origin, source, delivers=not dry_run) as old,
        opened_provider(home, target, delivers=not dry_run) as new,
        progress_bar("moving", "memories") as bar,
    ):
        owners = chosen_users(users)
        unsent = 0 if old.manager.flush(10.0) else old.manager.outbox.backlog(old.name).depth
        task = bar.add_task("", total=None)
        move = ProviderMove(
            memory,
            old,
            new,
            owners,
            on_record=lambda: bar.advance(task),
        )
        plan = move.plan()
        if dry_run or not wants_json():
            _show_plan(plan, unsent)
        if dry_run:
            return
        bar.stop()
        confirm(f"Move to {new.name}?")
        bar.start()
        total = plan.turns or sum(one.memories for one in plan.users)
        bar.update(task, total=total)
        receipt = move.run(plan)
        bar.stop()
        lacks = bool(receipt.refused) and not accept_refused
        if receipt.verified and not no_switch and not lacks:
            switch_provider(home, new.name)
            receipt.switched = True
        path = save_receipt(home, receipt)
    print_result(redact_value(asdict(receipt)), lambda: _show_receipt(receipt, path))
    _end(ctx, receipt, path, lacks=lacks and not no_switch)


def _end(ctx: click.Context, receipt: MoveReceipt, path: Path, *, lacks: bool) -> None:
    """Name what the target refused, and fail if it was not chosen for a fault."""
    refused = [redact(reason) for reason in receipt.refused]
    if receipt.verified and not lacks:
        finish(ctx, [*refused, *receipt.disputed])
        return
    warn([*refused, *receipt.disputed])
    if receipt.took_none:
        raise Failure(
            f"{receipt.target!r} took none of the {_memories(receipt.memories)} of {receipt.source!r}, and "
            f"memory.provider stays as it is; see {path}"
        )
    if not receipt.verified:
        what = (
            counted(len(receipt.missing), "turn or note", "turns and notes") if receipt.way == "turns" else ""
        )
        raise Failure(
            f"{what or _memories(len(receipt.missing))} of {receipt.source!r} did not arrive, and memory.provider stays as it "
            f"is; run it again, or see {path}"
        )
    raise Failure(
        f"{receipt.target!r} refused {_memories(len(refused))}, and memory.provider stays as it is; to choose it "
        "without them, run it again with --accept-refused"
    )


def _memories(count: int) -> str:
    return f"{count:,} {'memory' if count == 1 else 'memories'}"


def _show_plan(plan: MovePlan, unsent: int) -> None:
    if wants_json():
        print_document(asdict(plan))
        return
    click.echo(printable(f"from {plan.source} to {plan.target}"))
    if plan.way == "turns":
        click.echo(hanging(f"{plan.reason}: {counted(plan.turns, 'turn')}, {counted(plan.notes, 'note')}"))
    for user in plan.users:
        whose = user.user or "the person at home"
        there = "" if user.present is None else f", {user.present:,} of them there already"
        click.echo(printable(f"  {whose}: {_memories(user.memories)}{there}"))
    if plan.way == "memories" and not plan.users:
        click.echo("  nothing: the source has no memories")
    if plan.unseen:
        click.echo(hanging(plan.unseen))
    for sentence in plan.disputed:
        click.echo(hanging(sentence))
    if unsent:
        click.echo(f"{counted(unsent, 'write')} still wait for {plan.source} and are not in it yet")


def _show_receipt(receipt: MoveReceipt, path: Path) -> None:
    what = "turns and notes" if receipt.way == "turns" else "memories"
    click.echo(f"{receipt.memories:,} {what}, {receipt.copied:,} sent in this run")
    if receipt.way == "turns":
        click.echo(hanging(receipt.reason))
    else:
        click.echo(f"hash of the source: {receipt.source_hash}")
        click.echo(f"hash of the target: {receipt.target_hash or 'none'}")
    if receipt.unverified:
        click.echo(hanging(f"{receipt.acknowledged:,} of {receipt.memories:,}: {receipt.unverified}"))
    if receipt.altered:
        click.echo(
            f"{receipt.altered:,} of them without a kind, time, tag or detail that {receipt.target} does not keep"
        )
    if receipt.unseen:
        click.echo(hanging(receipt.unseen))
    if receipt.switched:
        click.echo(f"memory provider: {receipt.target}, from the next start on")
    click.echo(printable(f"receipt: {path}"))
