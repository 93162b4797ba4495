"""The command line: `hermes-memory` and `python -m hermes_core` are the same program, and so is the alias `hermes`.

Exit codes: 0 done; 1 refused or failed, one line on standard error says why and what to do; 2 wrong usage; 3 done, but
something that is configured does not work; 130 ended by Ctrl-C.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib
import io
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import click

from hermes_core.errors import HermesError
from hermes_core.home import FOLDER_PREFIX, HermesHome

if TYPE_CHECKING:
    from hermes_core.contract.extensions import CommandEntry
    from hermes_core.loader.extensions import Extensions

DEGRADED = 3
"""Exit code of a command that worked while something that is configured does not."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

COMMANDS = {
    "completion": "hermes_core.cli.shell:completion",
    "config": "hermes_core.cli.settings:config",
    "costs": "hermes_core.cli.turns:costs",
    "demo": "hermes_core.cli.demo:demo",
    "doctor": "hermes_core.cli.doctor:doctor",
    "extensions": "hermes_core.cli.extensions:extensions",
    "identity": "hermes_core.cli.identity:identity",
    "forget": "hermes_core.cli.forget:forget",
    "import": "hermes_core.cli.importing:import_command",
    "install-alias": "hermes_core.cli.shell:install_alias",
    "keys": "hermes_core.cli.keys:keys",
    "logs": "hermes_core.cli.doctor:logs",
    "memory": "hermes_core.cli.memory:memory",
    "outbox": "hermes_core.cli.outbox:outbox",
    "providers": "hermes_core.cli.providers:providers",
    "recall": "hermes_core.cli.recall:recall",
    "review": "hermes_core.cli.review:review",
    "sessions": "hermes_core.cli.sessions:sessions",
    "storage": "hermes_core.cli.storage:storage",
    "turns": "hermes_core.cli.turns:turns",
    "verify": "hermes_core.cli.verify:verify",
}

SUMMARIES = {
    "completion": "Print the script that completes commands in your shell.",
    "config": "Read and write the settings in config.yaml.",
    "costs": "Show the tokens of memory on each day.",
    "demo": "Import a sample conversation and recall facts from it.",
    "doctor": "Test all of memory with a real write, and say what to do about what fails.",
    "extensions": "List the extensions, and install one of ours.",
    "identity": "Name yourself on other platforms, so that your memory is the same there.",
    "forget": "Delete all that is stored of one user.",
    "import": "Bring conversations or an export from a file into memory.",
    "install-alias": "Add the short command `hermes` for this program.",
    "keys": "Keep keys and passwords in .env. No command prints a value.",
    "logs": "Show what happened.",
    "memory": "Show, change and undo curated memory; choose the provider.",
    "outbox": "List, retry and drop writes that a provider has not taken yet.",
    "providers": "List the memory providers; install packages of them; start one of your own.",
    "recall": "Show what a turn with this message would be given.",
    "review": "Confirm or reject notes that come from tools, pages, imports, providers or other users.",
    "sessions": "List, search and show past sessions; keep the store well.",
    "storage": "Show where sessions and notes are; move them to a server or back into files.",
    "turns": "Show what turns were given, and what was left out.",
    "verify": "Check that nobody changed the record of notes, skills and confirmations.",
}


# Words that people try first, and the command that does it.
HINTS = {
    "accept": "review",
    "add": "memory add",
    "confirm": "review",
    "delete": "sessions delete",
    "history": "sessions list",
    "init": "memory setup",
    "install": "plugins install",
    "list": "sessions list",
    "login": "memory setup",
    "model": "config set model.name",
    "prune": "sessions prune",
    "remember": "memory add",
    "search": "sessions search",
    "setup": "memory setup",
    "show": "memory show",
    "status": "memory status",
    "undo": "memory undo",
    "update": "plugins update",
    "use": "memory use",
}


_WORDS = "hermes_core.words"
"""Key of the words of the command line in the context."""

_EXTENSIONS = "hermes_core.extensions"
"""Key of the loaded extensions in the context of the program."""


class Failure(click.ClickException):
    """An expected failure: one line, exit code 1."""

    def show(self, file: Any = None) -> None:
        """Print the one line."""
        from hermes_core.safety.terminal import hanging

        message = f"error: {hanging(self.format_message())}"
        click.secho(message, fg="red", err=True, file=file, color=self.show_color)


class Group(click.Group):
    """Commands below one word. Its help shows the whole first sentence of each.

    `lazy` names commands as "module:attribute", which are imported when they are used: a command that prints a status
    does not wait for the modules of setup. Commands of extensions stand among them.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in order."""
        return sorted({*super().list_commands(ctx), *self.lazy, *self._of_extensions(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now if it is lazy."""
        if cmd_name in self.lazy:
            return _imported(self.lazy[cmd_name])
        if (command := super().get_command(ctx, cmd_name)) is not None:
            return command
        if (entry := self._of_extensions(ctx).get(cmd_name)) is not None:
            return _imported_from(ctx, entry)
        if ctx.resilient_parsing:
            return None
        if remedy := _missing_package(f"{self.name} {cmd_name}"):
            raise Failure(remedy)
        missing = (word for word, _ in _missing_commands(ctx, f"{self.name} "))
        raise _unknown_command(ctx, cmd_name, [*self.list_commands(ctx), *missing])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands in `--help`."""
        longest = 1000
        added = self._of_extensions(
            ctx
        )  # from the summaries, so that one that can't be imported has a line too
        own = {name: self.get_command(ctx, name) for name in {*super().list_commands(ctx), *self.lazy}}
        rows = {name: entry.summary for name, entry in added.items()} | {
            n: c.get_short_help_str(longest) for n, c in own.items() if c is not None and not c.hidden
        }
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(sorted(rows.items()))
        _write_missing(ctx, formatter, f"{self.name} ")

    def _of_extensions(self, ctx: click.Context) -> dict[str, CommandEntry]:
        """Return the commands that extensions add below this word."""
        prefix = f"{self.name} "
        commands = extensions_of(ctx).commands
        return {n.removeprefix(prefix): entry for n, entry in commands.items() if n.startswith(prefix)}


class LazyGroup(click.Group):
    """Group of all commands. It imports a module when its command runs, and includes the active provider's commands."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return `--help`, which is read after `--home`: the home decides which provider has commands."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.is_eager = False
        return option

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of our commands, of extensions' and of the active provider. Import no command."""
        return sorted({*COMMANDS, *_top_level(ctx), *_active_provider(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now."""
        if cmd_name in COMMANDS:
            return _imported(COMMANDS[cmd_name])
        if cmd_name in (added := _top_level(ctx)):
            return _imported_from(ctx, added[cmd_name])
        if cmd_name in (active := _active_provider(ctx)):
            from hermes_core.cli.providers import provider_commands

            return provider_commands(home_of(ctx), active[cmd_name])
        if ctx.resilient_parsing:
            return None
        from hermes_core.loader.discover import BUNDLED

        if remedy := _missing_package(cmd_name):
            raise Failure(remedy)
        if cmd_name in HINTS:
            raise click.UsageError(f"No such command {cmd_name!r}; run: hermes-memory {HINTS[cmd_name]}", ctx)
        if cmd_name in BUNDLED:
            raise click.UsageError(
                f"No such command {cmd_name!r} while another provider is active, or none; "
                f"choose it first: hermes-memory memory use {cmd_name}",
                ctx,
            )
        missing = (word for word, _ in _missing_commands(ctx))
        raise _unknown_command(ctx, cmd_name, [*self.list_commands(ctx), *missing])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands in `--help`, from the summaries, so that help imports no command."""
        provider = {name: f"Commands of the active provider {name!r}." for name in _active_provider(ctx)}
        added = {name: entry.summary for name, entry in _top_level(ctx).items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted({**provider, **added, **SUMMARIES}.items()))
        _write_missing(ctx, formatter)

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run as a program, also where a stream is closed or can't hold every script."""
        program = not args and "args" not in extra
        if program:
            _redact_tracebacks()
        with _streams():
            try:
                return super().main(*args, **extra)
            except SystemExit as exc:
                if program:
                    _leave(exc)
                raise

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the words; help and the version are printed while that is done."""
        words = tuple(args)  # click takes them out of the list
        with _errors_of_the_system(), _redacted_errors(words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[_WORDS] = words
        return context

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an expected failure becomes one line, and what is logged goes to the home's log.

        With `--debug` it is shown as well.
        """
        from hermes_core.logs import LogFile, logging_to

        if ctx.params["debug"]:
            _show_log(ctx)
        try:
            with (
                _redacted_errors(ctx.meta.get(_WORDS, ())),
                _errors_of_the_system(),
                logging_to(LogFile(home_of(ctx))),
            ):
                return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort) as exc:
            # Ctrl-C and a "no" need no word; a question at the end of the input does.
            if isinstance(exc.__context__, EOFError):
                click.echo(err=True)
                raise Failure("a question was left without an answer; options answer it: see --help") from exc
            if KeyboardInterrupt in (type(exc), type(exc.__context__)):
                click.echo(err=True)
                ctx.exit(INTERRUPTED)
            raise


def _imported_from(ctx: click.Context, entry: CommandEntry) -> click.Command | None:
    """Return the command of an extension, None if it can't be had while a shell completes words.

    Raise `Failure` if it, or a package that it needs, can't be imported.
    """
    from hermes_core.loader.extensions import extension_remedy, import_target

    try:
        command = import_target(entry.target)
        if isinstance(command, click.Command):
            return command
        fault = f"is {entry.target!r}, which is no click command"
    except ImportError as exc:
        fault = (
            f"needs the package {exc.name!r}, which can't be imported"
            if isinstance(exc, ModuleNotFoundError)
            else f"can't be imported: {exc}"
        )
    if ctx.resilient_parsing:
        return None
    raise Failure(f"{entry.name!r} {fault}; {extension_remedy(extensions_of(ctx), entry.extension)}")


def extensions_of(ctx: click.Context) -> Extensions:
    """Return the extensions that the home of this command may use. They are loaded once for each command."""
    root = ctx.find_root()
    if (loaded := root.meta.get(_EXTENSIONS)) is None:
        from hermes_core.config import Config, ExtensionsConfig, load_config
        from hermes_core.loader.extensions import load_extensions
        from hermes_core.packages import OWN_PACKAGES

        try:
            config = load_config(home_of(root))
        except HermesError:  # the command itself reports it; doctor must be there to help
            # The file may block an extension of a stranger, so only those of this project are imported without it.
            config = Config(extensions=ExtensionsConfig(allow=tuple(sorted(OWN_PACKAGES))))
        loaded = root.meta[_EXTENSIONS] = load_extensions(config)
    return cast("Extensions", loaded)


def _top_level(ctx: click.Context) -> dict[str, CommandEntry]:
    """Return the commands that extensions add directly below the program, without those that are the core's own."""
    commands = extensions_of(ctx).commands
    return {name: entry for name, entry in commands.items() if " " not in name and name not in COMMANDS}


def _missing_package(command: str) -> str:
    """Return what to do if a package of ours that is not installed or not allowed has the command, else ""."""
    from hermes_core.loader.extensions import Extensions, inactive_reason
    from hermes_core.packages import KNOWN_EXTENSIONS

    for name, known in KNOWN_EXTENSIONS.items():
        if command in known.commands:
            ctx = click.get_current_context(silent=True)
            loaded = extensions_of(ctx) if ctx is not None else Extensions()
            return f"{command!r} is {inactive_reason(loaded, name)}"
    return ""


def _missing_commands(ctx: click.Context, prefix: str = "") -> list[tuple[str, str]]:
    """Return the commands of our packages that are not installed, each with its summary and its package."""
    from hermes_core.packages import KNOWN_EXTENSIONS

    commands = extensions_of(ctx).commands
    return sorted(
        (word, f"{summary} Not installed: {known.distribution}.")
        for known in KNOWN_EXTENSIONS.values()
        for name, summary in known.commands.items()
        if name not in commands and " " not in (word := name.removeprefix(prefix)) and name == prefix + word
    )


def _write_missing(ctx: click.Context, formatter: click.HelpFormatter, prefix: str = "") -> None:
    """Write the commands of our packages that are not installed, dimmed, each with its package."""
    if rows := _missing_commands(ctx, prefix):
        with formatter.section("Commands of packages that are not installed"):
            formatter.write_dl([(name, click.style(text, dim=True)) for name, text in rows])


def _unknown_command(ctx: click.Context, word: str, known: Iterable[str]) -> click.UsageError:
    close = get_close_matches(word, list(known), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; see: {ctx.command_path} --help"
    return click.UsageError(f"No such command {word!r}{hint}", ctx)


def _imported(place: str) -> click.Command:
    module, _, attribute = place.partition(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    metavar="DIR",
    is_eager=True,
    help="The HERMES_HOME to use (default: $HERMES_HOME, else ~/.hermes).",
)
@click.option(
    "--profile",
    metavar="NAME",
    is_eager=True,
    help="A profile, a whole home of its own (default: $HERMES_PROFILE).",
)
@click.option("--debug", is_flag=True, help="Print what is logged on standard error, with tracebacks.")
@click.version_option(package_name="hermes-memory-core", prog_name="hermes-memory")
@click.pass_context
def main(ctx: click.Context, home: str | None, profile: str | None, debug: bool) -> None:  # noqa: ARG001  read where the log begins
    """The memory of an AI agent: curated notes, past sessions and one external provider."""
    from hermes_core.safety.redact import looks_like_key

    ctx.obj = {"home": home, "profile": profile}
    if profile and looks_like_key(profile):
        raise Failure("that profile name looks like a key; nothing was created")
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        ctx.color = False


def home_of(ctx: click.Context) -> HermesHome:
    """Return the home that the options before the command name."""
    from hermes_core.kit.cli import command_home

    return command_home(ctx)


@contextlib.contextmanager
def _streams() -> Iterator[None]:
    """Replace streams that the program was started without, as by cron or `>&-`, by the null device.

    Characters that an output encoding lacks become "?". Bytes that are no text are read as they stand in arguments.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    with contextlib.ExitStack() as opened:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            stream = getattr(sys, name)
            if stream is None:
                setattr(sys, name, opened.enter_context(Path(os.devnull).open(mode, encoding="utf-8")))
            elif isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
                with contextlib.suppress(io.UnsupportedOperation):  # a host has read of it before
                    stream.reconfigure(errors="replace" if mode == "w" else "surrogateescape")
        try:
            yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = before


@contextlib.contextmanager
def _errors_of_the_system() -> Iterator[None]:
    """Turn an error of the system into an expected failure of one line."""
    try:
        yield
    except OSError as exc:
        # A reader who has seen enough, as `head` has, is no failure to speak of.
        if exc.errno == errno.EPIPE:
            raise
        where = f"{exc.filename}: " if exc.filename else ""
        raise Failure(f"{where}{exc.strerror or exc}; check the disk and the modes there") from exc


@contextlib.contextmanager
def _redacted_errors(words: tuple[str, ...]) -> Iterator[None]:
    """Turn an expected failure into one line, and redact a key that was pasted as a name and is quoted in an error.

    Args:
        words: The words of the command line. One that looks like a key is redacted also if its format is not known.
    """
    try:
        yield
    except HermesError as exc:
        raise Failure(_without_pasted_keys(str(exc), words)) from exc
    except click.ClickException as exc:
        message = exc.format_message()
        clean = _without_pasted_keys(message, words)
        if clean == message:
            raise
        raise (
            click.UsageError(clean, exc.ctx) if isinstance(exc, click.UsageError) else Failure(clean)
        ) from exc


def _without_pasted_keys(message: str, words: tuple[str, ...]) -> str:
    from hermes_core.safety.redact import looks_like_key, redact

    for word in words:
        for part in (word, *word.lstrip("-").split("=", 1)):
            if looks_like_key(part):
                message = message.replace(part, "[redacted:key]")
    return redact(message)


def _redact_tracebacks() -> None:
    """Print uncaught exceptions of this process, also of its threads, with secrets redacted."""

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        from hermes_core.safety.redact import redact

        sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))

    def show_of_thread(ended: threading.ExceptHookArgs) -> None:
        if ended.exc_value is not None and not isinstance(ended.exc_value, SystemExit):
            show(ended.exc_type, ended.exc_value, ended.exc_traceback)

    sys.excepthook = show
    threading.excepthook = show_of_thread


def _leave(end: SystemExit) -> None:
    """End the process here where threads of calls live that hang: Python's own end waits for what they hold, as a
    database that waits for its lock, or aborts. All that this process wrote is stored.
    """
    if not any(thread.daemon for thread in threading.enumerate()):
        return
    # os._exit runs none of them, and one of them stops the workers of providers.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))


def _show_log(ctx: click.Context) -> None:
    """Print all log lines of this command on standard error, those of this package also in detail."""
    from hermes_core.logs import concerns_memory

    handler = _ToTerminal(logging.DEBUG)
    handler.addFilter(concerns_memory)
    root, logger = logging.getLogger(), logging.getLogger("hermes_core")
    before = logger.level
    root.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    ctx.call_on_close(lambda: root.removeHandler(handler))
    ctx.call_on_close(lambda: logger.setLevel(before))


class _ToTerminal(logging.Handler):
    """Log lines on standard error; what a provider put into one can't drive the terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        from hermes_core.safety.terminal import hanging

        click.echo(hanging(f"{record.levelname.lower()}: {record.name}: {self.format(record)}"), err=True)


def _active_provider(ctx: click.Context) -> dict[str, str]:
    """Return the providers that config.yaml selects, by the names of their commands.

    One with the name of a command of ours is left out. Return {} if the file can't be read.
    """
    from hermes_core.config import load_config

    try:
        names = load_config(home_of(ctx)).selected_providers
    except HermesError:
        return {}
    commands = {name.removeprefix(FOLDER_PREFIX): name for name in names}
    taken = {*COMMANDS, *_top_level(ctx)}
    return {command: name for command, name in commands.items() if command not in taken}
