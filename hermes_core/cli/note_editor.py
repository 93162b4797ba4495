"""The command `hermes-memory memory edit`: notes in an editor."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import click

from hermes_core.actions.notes import session_of_user
from hermes_core.cli import Failure, home_of
from hermes_core.cli.options import target_option, user_option
from hermes_core.cli.output import edit_text, finish, print_done, warn
from hermes_core.contract.values import MemoryTarget
from hermes_core.curated.document import join_entries
from hermes_core.curated.store import Notes
from hermes_core.errors import HermesError
from hermes_core.memory import Memory, open_memory
from hermes_core.shell_words import shell_word
from hermes_core.storage.files import PRIVATE_FILE, write_atomic


@click.command("edit")
@target_option
@user_option
@click.pass_context
def edit_notes(ctx: click.Context, target: str, user: str) -> None:
    """Open the notes in your editor, $VISUAL or $EDITOR, as a copy, and store what you save.

    What the agent changes meanwhile stays, entry by entry. If you both changed the same entry, your text is kept in a file
    and the notes stay as they are. Lines that hold only § separate entries.
    """
    home, name = home_of(ctx), cast(MemoryTarget, target)
    with open_memory(home, provider="") as opened:
        base = opened.curated.of(session_of_user(opened, user)).entries(name)
    before = join_entries(base)
    text = edit_text(before + "\n" if before else "", ".md")
    if text is None or text.rstrip("\n") == before:
        print_done("nothing was changed")
        return
    with open_memory(home) as opened:
        session = session_of_user(opened, user)
        store = opened.curated.of(session)
        try:
            result = store.edit(name, text, base, session=session)
            error = "" if result.get("success") else str(result["error"])
        except HermesError as exc:  # the server is down, or the disk is full
            result, error = {}, f"{exc}."
        if error:
            copy = _keep_text(opened, store, name, text)
            again = f"hermes-memory memory edit{f' --target {target}' if target != 'memory' else ''}"
            again += f" --user {shell_word(user)}" if user else ""
            raise Failure(f"{error} Your text is in {str(copy)!r}; take what is missing over with: {again}")
        flagged, problems = store.read().flagged(name), opened.problems(session)
    print_done(" ".join([result["message"], result["usage"], result.get("notice", "")]).strip())
    warn(filter(None, [result.get("caution"), result.get("warning"), *(one.problem for one in flagged)]))
    finish(ctx, problems)


def _keep_text(memory: Memory, store: Notes, target: MemoryTarget, text: str) -> Path:
    """Write what a person wrote and what could not be stored beside the notes, and return the file."""
    path = memory.home.memories / store.files.key(target)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    place = path.with_name(f"{path.name}.mine.{stamp}")
    number = 1
    while place.exists():
        number += 1
        place = path.with_name(f"{path.name}.mine.{stamp}-{number}")
    write_atomic(place, text.encode("utf-8", "surrogatepass"), PRIVATE_FILE)
    return place
