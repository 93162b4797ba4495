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
    "completion": ("shell:completion", "Print the script that completes commands in your shell."),
    "config": ("settings:config", "Read and write the settings in config.yaml."),
    "costs": ("turns:costs", "Show the tokens of memory on each day."),
    "demo": ("demo:demo", "Import a sample conversation and recall facts from it."),
    "doctor": ("doctor:doctor", "Test all of memory with a real write, and say what to do about what fails."),
    "extensions": ("extensions:extensions", "List the extensions, and install one of ours."),
    "forget": ("forget:forget", "Delete all that is stored of one user."),
    "identity": (
        "identity:identity",
        "Name yourself on other platforms, so that your memory is the same there.",
    ),
    "install-alias": ("shell:install_alias", "Add the short command `hermes` for this program."),
    "keys": ("keys:keys", "Keep keys and passwords in .env. No command prints a value."),
    "logs": ("doctor:logs", "Show what happened."),
    "memory": ("memory:memory", "Show, change and undo notes; choose the provider."),
    "outbox": ("outbox:outbox", "List, retry and delete writes that a provider has not taken yet."),
    "providers": (
        "providers:providers",
        "List the memory providers; install packages of them; start one of your own.",
    ),
    "recall": ("recall:recall", "Show what a turn with this message would be given."),
    "review": (
        "review:review",
        "Confirm or reject notes that come from tools, pages, imports, providers or other users.",
    ),
    "sessions": ("sessions:sessions", "List, search and show past sessions; keep the store well."),
    "storage": (
        "storage:storage",
        "Show where sessions and notes are; move them to a server or back into files.",
    ),
    "turns": ("turns:turns", "Show what turns were given, and what was left out."),
    "verify": ("verify:verify", "Check that nobody changed the record of notes, skills and confirmations."),
}
"""The commands of the core: "module:attribute" in this package, imported when the command runs, and the summary."""


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


class Misuse(click.UsageError):
    """Wrong usage: one line, exit code 2."""

    def show(self, file: Any = None) -> None:
        """Print the one line, with the way to the help of the command."""
        from hermes_core.safety.terminal import hanging

        text = " ".join(self.format_message().split())
        if self.ctx is not None and "hermes-memory " not in text:
            see = " See" if text.endswith("?") else "; see"
            text = f"{text.removesuffix('.')}{see}: {self.ctx.command_path} --help"
        color = self.ctx.color if self.ctx is not None else None
        click.secho(f"error: {hanging(text)}", fg="red", err=True, file=file, color=color)


class _Text(click.types.StringParamType):
    """Type of an option or argument that is text: bytes of another encoding are wrong usage."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, or fail. A locale of ASCII passes UTF-8 on as bytes."""
        text = super().convert(value, param, ctx)
        try:
            return text.encode("utf-8", "surrogateescape").decode("utf-8")
        except UnicodeError:
            self.fail("it is no UTF-8 text; type it again, and choose UTF-8 in the terminal", param, ctx)


_TEXT = _Text()


class _NamedPath(click.Path):
    """Type of a path that refuses the empty one, as an unset variable of a shell gives: it would be this folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or fail."""
        if not str(value):
            self.fail("it is empty; name a file or a folder", param, ctx)
        return super().convert(value, param, ctx)


class Group(click.Group):
    """Commands below one word, each by the rule of this command line. Its help shows the whole first sentence of each.

    The rule holds for commands of extensions and providers as well: each has `--json` unless it says why not, a wrong
    option or word is one line that names a near one, what is no text is refused, and what a command asks, `--yes` of
    `kit.cli` answers.

    Args:
        lazy: Commands as "module:attribute", imported when they are used: a command that prints a status does not wait
            for the modules of setup.
        old: Earlier names of commands, which help does not show, with the present ones.
    """

    prefix = ""
    """Words between the program and a command of this group, as "storage "."""

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, str] | None = None,
        old: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.lazy, self.old = dict(lazy or {}), dict(old or {})
        self.prefix = f"{self.name} "

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in order. Import none."""
        return sorted({*super().list_commands(ctx), *self.lazy, *self.added(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now if it is lazy, with the options that the rule gives it."""
        name = self.old.get(cmd_name, cmd_name)
        if name in self.lazy:
            command: click.Command | None = _imported(self.lazy[name])
        elif (command := super().get_command(ctx, name)) is None:
            entry = self.added(ctx).get(name)
            command = self.other(ctx, name) if entry is None else _imported_from(ctx, entry)
        if command is not None:
            return _by_rule(command)
        if ctx.resilient_parsing:
            return None
        if remedy := _missing_package(ctx, self.prefix + name):
            raise Failure(remedy)
        missing = (word for word, _ in _missing_commands(ctx, self.prefix))
        raise self.unknown(ctx, cmd_name, [*self.list_commands(ctx), *missing])

    def added(self, ctx: click.Context) -> dict[str, CommandEntry]:
        """Return the commands that extensions add directly below this word, without names of the core."""
        commands = extensions_of(ctx).commands
        below = {n[len(self.prefix) :]: e for n, e in commands.items() if n.startswith(self.prefix)}
        return {word: entry for word, entry in below.items() if " " not in word and word not in self.lazy}

    def other(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command that is neither the core's nor an extension's; None for none."""
        del ctx, name
        return None

    def unknown(self, ctx: click.Context, word: str, known: Iterable[str]) -> click.UsageError:
        """Return the error about a word that is no command, with a near one."""
        close = get_close_matches(word, list(known), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return click.UsageError(f"No such command {word!r}{hint}", ctx)

    def summaries(self, ctx: click.Context) -> dict[str, str]:
        """Return the commands that help shows, each with its summary."""
        longest = 1000
        own = {name: self.get_command(ctx, name) for name in {*super().list_commands(ctx), *self.lazy}}
        # Of extensions the registered text, so that a command that can't be imported has a line too.
        return {name: entry.summary for name, entry in self.added(ctx).items()} | {
            n: c.get_short_help_str(longest) for n, c in own.items() if c is not None and not c.hidden
        }

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in `--help`; those of our packages that are not installed dimmed, with the package."""
        if rows := self.summaries(ctx):
            with formatter.section("Commands"):
                formatter.write_dl(sorted(rows.items()))
        if missing := _missing_commands(ctx, self.prefix):
            with formatter.section("Commands of packages that are not installed"):
                formatter.write_dl([(name, click.style(text, dim=True)) for name, text in missing])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and print what the rule adds to it."""
        from hermes_core.kit.cli import end_document

        try:
            result = super().invoke(ctx)
        except click.exceptions.Exit:
            end_document(ctx)
            raise
        end_document(ctx)
        return result


class Program(Group):
    """Group of all commands, which includes the active provider's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        lazy = {name: f"{__name__}.{target}" for name, (target, _) in COMMANDS.items()}
        super().__init__(*args, lazy=lazy, **options)
        self.prefix = ""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return `--help`, which is read after `--home`: the home decides which provider has commands."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.is_eager = False
        return option

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of our commands, of extensions' and of the active provider. Import no command."""
        return sorted({*super().list_commands(ctx), *self._of_provider(ctx)})

    def other(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return the commands of the active provider if this is its name."""
        if (provider := self._of_provider(ctx).get(name)) is None:
            return None
        from hermes_core.cli.providers import provider_commands

        return provider_commands(home_of(ctx), provider)

    def unknown(self, ctx: click.Context, word: str, known: Iterable[str]) -> click.UsageError:
        """Return the error about a word that is no command, with the command that does what people mean by it."""
        from hermes_core.loader.discover import BUNDLED

        if word in HINTS:
            return click.UsageError(f"No such command {word!r}; run: hermes-memory {HINTS[word]}", ctx)
        if word in BUNDLED:
            return click.UsageError(
                f"No such command {word!r} while another provider is active, or none; "
                f"choose it first: hermes-memory memory use {word}",
                ctx,
            )
        return super().unknown(ctx, word, [*known, *BUNDLED])

    def summaries(self, ctx: click.Context) -> dict[str, str]:
        """Return the commands that help shows from the tables, so that help imports no command."""
        provider = {name: f"Commands of the active provider {name!r}." for name in self._of_provider(ctx)}
        added = {name: entry.summary for name, entry in self.added(ctx).items()}
        return {**provider, **added, **{name: summary for name, (_, summary) in COMMANDS.items()}}

    def _of_provider(self, ctx: click.Context) -> dict[str, str]:
        """Return the providers that config.yaml selects, by the names of their commands.

        One with the name of a command of ours is left out. Return {} if the file can't be read.
        """
        from hermes_core.config import load_config

        try:
            names = load_config(home_of(ctx)).selected_providers
        except HermesError:
            return {}
        commands = {name.removeprefix(FOLDER_PREFIX): name for name in names}
        others = {*self.lazy, *self.added(ctx)}
        return {command: name for command, name in commands.items() if command not in others}

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


def _by_rule(command: click.Command) -> click.Command:
    """Return a command with what the rule of `Group` gives it. A plain group becomes a `Group`."""
    from hermes_core.kit.cli import json_flag

    if type(command) is click.Group:
        names: tuple[str, ...] = (
            "callback",
            "params",
            "help",
            "short_help",
            "epilog",
            "hidden",
            "context_settings",
        )
        names += ("invoke_without_command", "no_args_is_help", "subcommand_metavar", "chain")
        options = {name: getattr(command, name) for name in names}
        command = Group(command.name, commands=command.commands, **options)
    for parameter in command.params:
        if parameter.type is click.STRING:
            parameter.type = _TEXT
        elif type(parameter.type) is click.Path:
            options, parameter.type = vars(parameter.type), _NamedPath()
            vars(parameter.type).update(options)
    runs = not isinstance(command, click.Group) or command.invoke_without_command
    has_json = any("--json" in parameter.opts for parameter in command.params)
    # Its words are for another program, which may have a --json of its own.
    forwards = command.context_settings.get("ignore_unknown_options") and any(
        parameter.nargs < 0 for parameter in command.params
    )
    if runs and not (has_json or forwards or getattr(command.callback, "without_json", "")):
        json_flag(command)
    return command


def _missing_package(ctx: click.Context, command: str) -> str:
    """Return what to do if a package of ours that is not installed or not allowed has the command, else ""."""
    from hermes_core.loader.extensions import inactive_reason
    from hermes_core.packages import KNOWN_EXTENSIONS

    for name, known in KNOWN_EXTENSIONS.items():
        if command in known.commands:
            return f"{command!r} is {inactive_reason(extensions_of(ctx), name)}"
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


def _imported(place: str) -> click.Command:
    module, _, attribute = place.partition(":")
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
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
        where = f"{exc.filename}: " if exc.filename else "standard output, or a file: "
        from hermes_core.storage.files import remedy_for

        remedy = remedy_for(exc, "check the disk and the modes there")
        raise Failure(f"{where}{exc.strerror or exc}; {remedy}") from exc


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
        if isinstance(exc, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # click 8.1 has no such error
            raise
        clean = _without_pasted_keys(exc.format_message(), words)
        raise (Misuse(clean, exc.ctx) if isinstance(exc, click.UsageError) else Failure(clean)) from exc


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
