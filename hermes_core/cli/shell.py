"""The commands for the shell: `install-alias`, the short name `hermes`, and `completion`."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import click

from hermes_core.cli import Failure, home_of
from hermes_core.cli.output import print_done
from hermes_core.errors import HermesError
from hermes_core.kit.cli import without_json

ALIAS = "hermes"
PROGRAM = "hermes-memory"

_MARK = "Written by `hermes-memory install-alias`."
"""Text by which a launcher is known as ours, so that no other program is ever overwritten or removed."""

_MAX_LAUNCHER_BYTES = 4096


@click.command("install-alias")
@click.option("--remove", is_flag=True, help="Remove the alias; another program of that name stays.")
def install_alias(remove: bool) -> None:
    """Add the short command `hermes`, which runs this program.

    It is a small launcher beside hermes-memory. Nothing is written if another program on PATH is called hermes, as that
    of Hermes Agent is.
    """
    if remove:
        removed = remove_alias()
        text = "\n".join(f"removed {path}" for path in removed) or f"no alias {ALIAS!r} is installed"
        print_done(text, removed=removed)
        return
    path = add_alias()
    print_done(f"{ALIAS} now runs {PROGRAM}: {path}", path=path)
    if path.parent not in _search_path():
        click.echo(f"add its folder to PATH: {path.parent}", err=True)


def offer_alias() -> None:
    """Ask on a terminal whether to add the alias, unless it is there or another program has the name."""
    if next(_candidates(), None) is None and _on_terminal():
        if click.confirm(f"Add the short command {ALIAS!r} for {PROGRAM}?"):
            click.echo(f"{ALIAS} now runs {PROGRAM}: {add_alias()}")
        else:
            click.echo(f"{PROGRAM} install-alias adds it later")


def other_program() -> Path | None:
    """Return the program on PATH, or beside ours, that has the name of the alias and is not the alias."""
    return next((path for path in _candidates() if not _is_ours(path)), None)


def add_alias() -> Path:
    """Write the launcher and return its path. Raise `Failure` if another program has the name."""
    taken = other_program()
    if taken is not None:
        raise Failure(
            f"another program is called {ALIAS!r}: {str(taken)!r}; use {PROGRAM}, or an alias of your shell"
        )
    path = _folder() / (f"{ALIAS}.cmd" if os.name == "nt" else ALIAS)
    try:
        # cmd.exe reads a batch file in the OEM code page, and "\n" must not become "\r\r\n" there.
        path.write_text(_launcher(), encoding="oem" if os.name == "nt" else "utf-8", newline="")
        path.chmod(0o755)
    except OSError as exc:
        raise Failure(f"{str(path)!r} could not be written: {exc.strerror}; use {PROGRAM}") from exc
    return path


def remove_alias() -> list[Path]:
    """Remove every launcher of ours on PATH and beside the program; return what was removed."""
    ours = [path for path in _candidates() if _is_ours(path)]
    for path in ours:
        try:
            path.unlink()
        except OSError as exc:
            raise Failure(f"{str(path)!r} could not be removed: {exc.strerror}; remove it yourself") from exc
    return ours


def _launcher() -> str:
    # -P keeps the current folder out of the import path: a folder `hermes_core` there must not run in our place.
    code = f"from hermes_core.cli import main; main(prog_name='{ALIAS}')"
    if os.name == "nt":
        return f'@rem {_MARK}\r\n@"{sys.executable}" -P -c "{code}" %*\r\n'
    return f'#!/bin/sh\n# {_MARK}\nexec {shlex.quote(sys.executable)} -P -c "{code}" "$@"\n'


def _folder() -> Path:
    """Return the folder of the `hermes-memory` on PATH; without one, the folder of this environment's scripts.

    pipx and uv put a link to the program into a folder on PATH, while the environment's own folder is not on PATH.
    """
    scripts = Path(sysconfig.get_path("scripts"))
    names = (PROGRAM, f"{PROGRAM}.exe")
    mine = {(scripts / name).resolve() for name in names}
    for folder in _search_path():
        if any((folder / name).resolve() in mine and (folder / name).exists() for name in names):
            return folder
    return scripts


def _candidates() -> Iterator[Path]:
    """Yield each file that a shell would run for the name of the alias."""
    suffixes = (
        os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").lower().split(";") if os.name == "nt" else [""]
    )
    # Every folder, not the first hit: our launcher must not hide another program further down PATH.
    for folder in dict.fromkeys([*_search_path(), _folder()]):
        for suffix in suffixes:
            path = folder / f"{ALIAS}{suffix}"
            if path.is_file() and os.access(path, os.X_OK):
                yield path


def _search_path() -> list[Path]:
    return [Path(folder) for folder in os.get_exec_path() if folder]


def _on_terminal() -> bool:
    return sys.stdin.isatty()


def _is_ours(path: Path) -> bool:
    # The file may be a big binary, or unreadable: then it is not ours.
    with contextlib.suppress(OSError), path.open("rb") as file:
        return _MARK.encode() in file.read(_MAX_LAUNCHER_BYTES)
    return False


def complete_provider(ctx: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Return the names of providers that begin so, for `shell_complete`; our own also if they are not installed."""
    from hermes_core.loader.catalog import discover_providers

    del parameter
    try:
        return [entry.name for entry in discover_providers(home_of(ctx)) if entry.name.startswith(begun)]
    except HermesError:
        return []


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@without_json("it prints a script")
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands in SHELL.

    For bash, add `eval "$(hermes-memory completion bash)"` to ~/.bashrc; for zsh the same with zsh to ~/.zshrc; for fish, run
    `hermes-memory completion fish > ~/.config/fish/completions/hermes-memory.fish`.
    """
    from click.shell_completion import get_completion_class

    program = ctx.find_root().info_name or "hermes-memory"
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"no completion for {shell!r}")
    click.echo(script(ctx.find_root().command, {}, program, variable).source())
