"""Commands that a provider written for Hermes Agent has: argparse parsers."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

from hermes_core.errors import ProviderError
from hermes_core.home import HermesHome
from hermes_core.loader.foreign import Failure, attempt
from hermes_core.loader.hermes_home import environment_of
from hermes_core.loader.registration import HostCommand

logger = logging.getLogger(__name__)


def commands_of_module(module: str, name: str) -> Iterator[HostCommand]:
    """What `register_cli(subparser)` of the `cli.py` beside `module` adds; a damaged one is logged.

    The handler is looked for as the host does it, by the name that people select the provider with.
    """
    cli = _cli_module(module)
    setup = getattr(cli, "register_cli", None)
    if cli is not None and callable(setup):
        names = (f"{name}_command", f"{name.replace('-', '_')}_command")
        handlers = (getattr(cli, one, None) for one in names)
        yield HostCommand(name, setup, next(filter(callable, handlers), None))


def run_host_command(provider: object, home: HermesHome, name: str, words: Sequence[str]) -> int:
    """Run `hermes-memory NAME words...` with the parsers of this provider, in its home and environment; the exit code.

    Its own command takes all words, unless the first is the name of one that it registered beside that. Raises
    `ProviderError` when it has none, and when the command raises.
    """
    given: Callable[[], list[HostCommand]] = getattr(provider, "host_commands", list)
    commands = given()
    if not commands:
        raise ProviderError(f"provider {name!r} has no commands", "its tools and settings are all it offers")
    own = commands[0]
    beside = {command.name: command for command in commands if command.name not in (name, own.name)}
    chosen = beside.get(words[0]) if words else None
    prog = f"hermes-memory {name} {chosen.name}" if chosen else f"hermes-memory {name}"
    with environment_of(home.path):
        answer = attempt(lambda: (chosen or own).run(words[1:] if chosen else words, prog))
    if not isinstance(answer, Failure):
        return answer
    if isinstance(answer.error, SystemExit):
        raise answer.error
    raise ProviderError(
        f"a command of provider {name!r} raised {answer}", "hermes-memory --debug shows the traceback"
    )


def _cli_module(module: str) -> ModuleType | None:
    packages = [module, module.rpartition(".")[0]]
    for package in filter(None, packages):
        found = attempt(lambda package=package: importlib.util.find_spec(f"{package}.cli"))  # type: ignore[misc]
        if isinstance(found, Failure) or found is None:
            continue
        loaded = attempt(lambda package=package: importlib.import_module(f"{package}.cli"))  # type: ignore[misc]
        if not isinstance(loaded, Failure):
            return loaded
        logger.warning("the commands in %s.cli can't be imported: %s", package, loaded)
    return None
