"""Options that several commands share, and the memory of the home that a command works on."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import click

from hermes_core.actions.notes import session_of_user
from hermes_core.cli import Failure, home_of
from hermes_core.cli.output import finish, warn
from hermes_core.contract.values import MemoryTarget
from hermes_core.home import HOME_VARIABLES, HermesHome
from hermes_core.kit.cli import OldNames, WholeNumber
from hermes_core.memory import open_memory
from hermes_core.shell_words import shell_line

Command = Callable[..., Any]

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would happen.")

user_option = click.option(
    "--user", default="", metavar="PLATFORM:ID", help="For this user of a gateway; needs memory.per_user."
)


def _target(default: str, *others: str) -> Callable[[Command], Command]:
    kind = click.Choice([*others, *get_args(MemoryTarget)])
    text = "MEMORY.md, USER.md or PROJECT.md."
    return click.option("--target", type=kind, default=default, show_default=True, help=text)


target_option = _target("memory")
all_targets_option = _target("all", "all")


def limit_results_option(maximum: int, text: str, default: int | None = None) -> Callable[[Command], Command]:
    """Return the option for the number of results of a search."""
    kind = WholeNumber(1, maximum)
    return click.option(
        "-n", "-k", "--limit", type=kind, default=default, show_default=default is not None, help=text
    )


def time_options(what: str) -> Callable[[Command], Command]:
    """Return the options `--after` and `--before`, which arrive as texts that `PastSessions.read_moment` reads."""
    after = click.option(
        "--after",
        cls=OldNames,
        old=("--since",),
        metavar="TIME",
        help=f"Only {what} from this time on: 2026-01-31, or as in: last week, March.",
    )
    before = click.option(
        "--before", cls=OldNames, old=("--until",), metavar="TIME", help=f"Only {what} before this time."
    )
    return lambda command: after(before(command))


def source_options(command: Command) -> Command:
    """Add the options --source and --exclude-source, which arrive as `sources` and `exclude_sources`."""
    text = "of this source; may be given again."
    include = click.option("--source", "sources", multiple=True, help=f"Only sessions {text}")
    exclude = click.option("--exclude-source", "exclude_sources", multiple=True, help=f"No sessions {text}")
    return include(exclude(command))


@contextlib.contextmanager
def home_to_read(ctx: click.Context) -> Iterator[HermesHome]:
    """The home of a command that stores nothing new, which makes no folder.

    In place of the default home that does not exist yet, an empty one that is thrown away. Raises `Failure` if a home that was
    named does not exist.
    """
    home, options = home_of(ctx), ctx.find_root().params
    if home.path.exists():
        yield home
        return
    named = options.get("home") or options.get("profile") or any(map(os.environ.get, HOME_VARIABLES))
    if named:
        begin = shell_line(["hermes-memory", "--home", home.path, "doctor"])
        raise Failure(f"there is no home at {str(home.path)!r}; name another, or begin it: {begin}")
    warn([f"nothing is stored yet: there is no home at {str(home.path)!r}"])
    with tempfile.TemporaryDirectory(prefix="hermes-empty-", ignore_cleanup_errors=True) as folder:
        yield HermesHome(Path(folder))


def with_memory(
    *, provider: str | None = "", user: bool = False, begins: bool = True
) -> Callable[[Command], Command]:
    """Call a command with the memory of the home, which is open until the command ends.

    Args:
        begins: False for a command that stores nothing new, which begins no home; see `home_to_read`.
        provider: "" for the memory without a provider; None for the configured one, whose problems end the command with
            exit code 3.
        user: True to add `--user`, and to give the command a session of that user as well.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**options: Any) -> None:
            ctx = click.get_current_context()
            home = contextlib.nullcontext(home_of(ctx)) if begins else home_to_read(ctx)
            with home as opened, open_memory(opened, provider=provider) as memory:
                chosen = [session_of_user(memory, options.pop("user"))] if user else []
                command(memory, *chosen, **options)
                problems = memory.problems(*chosen) if provider is None else []
            finish(ctx, problems)

        return user_option(run) if user else run

    return decorate
