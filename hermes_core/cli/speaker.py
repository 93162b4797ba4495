"""Whose curated memory a command works on, and its way to the provider."""

from __future__ import annotations

import dataclasses

import click

from hermes_core.cli import Failure
from hermes_core.contract.values import Session
from hermes_core.memory import Memory

DELIVERY_WAIT = 3.0
"""Seconds that a command waits for the provider to take a change; what it does not take by then, waits in the outbox."""

START_WAIT = 15.0
"""Seconds that it waits before for a provider that starts slowly, as one with a model of its own does."""

user_option = click.option(
    "--user",
    default="",
    metavar="PLATFORM:ID",
    help="Of this user of a gateway, where memory.per_user is on.",
)


def speaker(opened: Memory, user: str) -> Session:
    """The person at this machine, or the user of a gateway that the command names."""
    if not user:
        return opened.local_session
    platform, colon, user_id = user.partition(":")
    if not (platform and colon and user_id):
        raise Failure(f"{user!r} names no user; write PLATFORM:ID, as telegram:42")
    if not opened.config.memory.per_user:
        raise Failure("all users share one USER.md; set memory.per_user in config.yaml")
    return dataclasses.replace(opened.local_session, platform=platform, user_id=user_id)


def deliver(opened: Memory, session: Session) -> None:
    """Let the provider have what changed; what it does not take in time stays in the outbox."""
    opened.manager.initialize_all(session, wait=START_WAIT)
    opened.flush(DELIVERY_WAIT)
