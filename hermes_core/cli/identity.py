"""The commands `hermes-memory identity`: who the person at home is on other platforms."""

from __future__ import annotations

import click
from msgspec import Struct

from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.options import with_memory
from hermes_core.cli.output import print_done, print_result, print_table, warn
from hermes_core.config import load_config, set_value
from hermes_core.contract.values import parse_outside_id
from hermes_core.home import HermesHome
from hermes_core.memory import Memory, open_memory
from hermes_core.safety.terminal import counted
from hermes_core.sessions.owners import give_to_home, stored_users


class KnownPerson(Struct, frozen=True):
    """An id from outside, and whether it is the person at home."""

    id: str
    is_owner: bool


@click.group(cls=Group)
def identity() -> None:
    """Name the person at home on other platforms: who shares the notes, skills and sessions of the home."""


@identity.command("add")
@click.argument("outside_id", metavar="PLATFORM:ID")
@click.pass_context
def add_owner(ctx: click.Context, outside_id: str) -> None:
    """Let PLATFORM:ID, such as telegram:123, be the person at home.

    PLATFORM/CHAT_ID names a chat whose host tells no users, so that everybody in it is the person at home. Sessions that
    were stored under the id become sessions of the home.
    """
    print_done(add_owners(home_of(ctx), [outside_id]), id=outside_id)


@identity.command("remove")
@click.argument("outside_id", metavar="PLATFORM:ID")
@click.pass_context
def remove_owner(ctx: click.Context, outside_id: str) -> None:
    """Let PLATFORM:ID be a user of their own again, from the next start on. What is stored stays with the home."""
    home = home_of(ctx)
    owners = load_config(home).identity.owners
    if outside_id not in owners:
        raise Failure(f"{outside_id!r} is not listed; {_listed(owners)}")
    set_value(home, "identity.owners", [owner for owner in owners if owner != outside_id])
    print_done(f"{outside_id} is a user of their own, from the next start on", id=outside_id)


@identity.command("list")
@with_memory(begins=False)
def list_people(opened: Memory) -> None:
    """List the ids of the person at home, and the others who have written."""
    owners = opened.config.identity.owners
    people = [KnownPerson(owner, True) for owner in owners]
    people += [
        KnownPerson(user, False) for user in stored_users(opened.sessions.database) if user not in owners
    ]
    rows = [(one.id, "the person at home" if one.is_owner else "a user of their own") for one in people]
    nobody = "Nobody has written from another platform, and nobody is named."
    print_result(people, lambda: print_table("", ("id", "is"), rows, nobody))
    warn(filter(None, [opened.problem_log.of_sharing()]))


def add_owners(home: HermesHome, outside_ids: list[str]) -> str:
    """Add ids to `identity.owners`, give their sessions to the home, and return a sentence about it.

    Raises `SessionError` for a text that is no id, and changes nothing then.
    """
    for outside_id in outside_ids:
        parse_outside_id(outside_id)
    owners = load_config(home).identity.owners
    set_value(home, "identity.owners", list(dict.fromkeys((*owners, *outside_ids))))
    with open_memory(home, provider="") as opened:
        return ", ".join(_added(opened, outside_id) for outside_id in outside_ids)


def _added(opened: Memory, outside_id: str) -> str:
    sessions = give_to_home(opened.sessions, outside_id)
    folder = opened.home.folder_of(outside_id)
    parts = [f"{outside_id} is the person at home, from the next start on"]
    if sessions:
        parts.append(f"{counted(sessions, 'session')} stored under it now belong to the home")
    elif others := stored_users(opened.sessions.database, limit=5):
        parts.append(f"nobody has written under exactly this id yet (there are {', '.join(others)})")
    if folder.exists():
        parts.append(f"its own notes stay in {str(folder)!r} and are used no more")
    return "; ".join(parts)


def _listed(owners: tuple[str, ...]) -> str:
    return (
        f"listed are {', '.join(owners)}"
        if owners
        else "nobody is: hermes-memory identity list shows who has written"
    )
