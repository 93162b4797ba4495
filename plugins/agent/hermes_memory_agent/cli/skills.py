"""Commands of `hermes-memory skills`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import click

from hermes_core import open_memory
from hermes_core.actions.notes import session_of_user
from hermes_core.cli import Group
from hermes_core.cli.options import home_to_read, user_option
from hermes_core.cli.output import moment, print_done, print_result, print_table, warn
from hermes_core.config import load_config
from hermes_core.kit import printable
from hermes_core.sessions.home_store import open_sessions
from hermes_memory_agent.skills.store import SkillStore, open_skills


@click.group(cls=Group)
def skills() -> None:
    """List, show, undo and restore skills: procedures that the agent wrote down."""


@skills.command(name="list")
@user_option
@click.pass_context
def list_skills(ctx: click.Context, user: str) -> None:
    """List the skills that can be used here."""
    with _store(ctx, user) as store:
        entries, problems, notices = store.skills(), store.problems(), store.notices()
    warn([*problems, *notices])
    data = [
        {
            "name": skill.name,
            "category": skill.category,
            "description": skill.document.description,
            "version": skill.document.version,
            "path": str(skill.folder),
        }
        for skill in entries
    ]
    rows = [(f"{skill.category}/{skill.name}", skill.document.description) for skill in entries]
    print_result(data, lambda: print_table("", ("skill", "for"), rows, "No skills yet."))


@skills.command(name="show")
@click.argument("name")
@user_option
@click.pass_context
def show_skill(ctx: click.Context, name: str, user: str) -> None:
    """Print the text of the skill NAME."""
    with _store(ctx, user) as store:
        text = store.view(name)
    print_result({"name": name, "text": text}, lambda: click.echo(printable(text)))


@skills.command(name="history")
@user_option
@click.pass_context
def list_changes(ctx: click.Context, user: str) -> None:
    """List the changes, newest first."""
    with _store(ctx, user) as store:
        changes = store.history()
    rows = [(change.id, moment(change.at), change.action, change.path) for change in changes]
    columns = ("change", "when", "action", "file")
    print_result(changes, lambda: print_table("", columns, rows, "No skill was changed yet."))


@skills.command(name="undo")
@click.argument("change", type=int, required=False)
@user_option
@click.pass_context
def undo_change(ctx: click.Context, change: int | None, user: str) -> None:
    """Take back the change with the id CHANGE, or the last one."""
    with _store(ctx, user) as store:
        taken = store.undo(change)
    print_done(f"Taken back: {taken.action} of {taken.path}", change=taken.id, path=taken.path)


@skills.command(name="restore")
@click.argument("change", type=int)
@user_option
@click.pass_context
def restore_skill(ctx: click.Context, change: int, user: str) -> None:
    """Bring a skill back as it was right after the change with the id CHANGE."""
    with _store(ctx, user) as store:
        version = store.restore(change)
    print_done(f"Restored: {version.path} as of change {change}", change=change, path=version.path)


@contextmanager
def _store(ctx: click.Context, user: str) -> Iterator[SkillStore]:
    """Open the store of the skills of a user, "" for the person at home."""
    with home_to_read(ctx) as home:
        owner = ""
        if user:
            with open_memory(home, provider="") as opened:
                owner = session_of_user(opened, user).owner
        config = load_config(home)
        with closing(open_sessions(home, config)) as sessions:
            yield open_skills(home, config, sessions.database, owner)
