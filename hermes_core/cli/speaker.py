"""Whose curated memory a command works on, and its way to the provider."""

from __future__ import annotations

import dataclasses
from urllib.parse import unquote

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
    help="For this user of a gateway; needs memory.per_user.",
)


def speaker(opened: Memory, user: str) -> Session:
    """The session that a command acts for: of the person at this machine, or, as `user` names them, of a user
    (PLATFORM:ID) or a chat without users (PLATFORM/CHAT) of a gateway.
    """
    if not user:
        return opened.local_session
    platform, colon, name = user.partition(":")
    if colon:
        platform = unquote(platform)
    else:
        platform, _, name = map(unquote, user.partition("/"))
    if not (platform and name):
        raise Failure(f"{user!r} names no user; write PLATFORM:ID, as telegram:42, or PLATFORM/CHAT")
    if not opened.config.memory.per_user:
        raise Failure("all users share one USER.md; set memory.per_user in config.yaml")
    there = dataclasses.replace(opened.local_session, platform=platform)
    return dataclasses.replace(there, user_id=name) if colon else dataclasses.replace(there, chat_id=name)


def deliver(opened: Memory, session: Session) -> str:
    """Let the provider have what changed; what it does not take in time stays in the outbox. What a person is told when
    no answer came and no trouble is known either; "" else.
    """
    opened.manager.initialize_all(session, wait=START_WAIT)
    if opened.flush(DELIVERY_WAIT) or opened.problems():
        return ""
    return f"{opened.selected!r} has not taken it within {DELIVERY_WAIT:g} s; it waits in the outbox and is sent later"
