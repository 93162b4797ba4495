"""The steps of loading a provider written for Hermes Agent, which the core asks for.

Modules that only a load needs are imported by it: a list of providers imports this module alone.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import importlib_metadata

from hermes_core import HermesHome
from hermes_core.errors import ProviderError, ProviderUnavailable
from hermes_core.loader.discover import ProviderCandidate, read_manifest
from hermes_core.loader.entry_points import installed_entry_points, normalise
from hermes_core.loader.guard import ForeignError, call_foreign
from hermes_memory_foreign.inspection import (
    HOST_PACKAGES,
    calls_register,
    is_recorded,
    may_register_provider,
    mentions_provider,
    record_no_provider,
)

if TYPE_CHECKING:
    import click

    from hermes_memory_foreign.registration import Registrations

logger = logging.getLogger(__name__)

# Entry points of plugins of Hermes Agent.
PLUGIN_GROUP = "hermes_agent.plugins"


class HermesAgentLoader:
    """The `ForeignLoader` of Hermes Agent."""

    reserved_modules = HOST_PACKAGES

    def holds_provider(self, folder: Path, manifest: Mapping[str, Any]) -> bool:
        """Return False if the source of a plugin folder, or an earlier load, shows that it holds no provider."""
        return not is_recorded(folder) and may_register_provider(folder, manifest)

    def refusal(self, candidate: ProviderCandidate) -> ProviderError | None:
        """Return the error for a provider whose plugin.yaml asks for another version or system, else None."""
        from hermes_memory_foreign.manifest import refusal_of

        if reason := refusal_of(_manifest_of(candidate)):
            return ProviderUnavailable(
                f"plugin.yaml of provider {candidate.name!r} says that it {reason}",
                "ask its author for a version that runs here",
            )
        return None

    @contextmanager
    def surroundings(self, home: Path, sessions: object) -> Iterator[None]:
        """Give a provider the modules, the sessions and the environment that it expects."""
        from hermes_memory_foreign.environment import environment_of, lend_sessions
        from hermes_memory_foreign.host_modules import install_host_modules

        install_host_modules()
        if sessions is not None:
            lend_sessions(home, sessions)
        with environment_of(home):
            yield

    def context(self) -> Registrations:
        """Return the `ctx` for `register(ctx)`."""
        from hermes_memory_foreign.registration import Registrations

        return Registrations()

    def companions(self, candidate: ProviderCandidate) -> Registrations | None:
        """Run `register(ctx)` of the other plugins of the provider's package, and return what they registered."""
        values = _companion_targets(candidate)
        if not values:
            return None
        together = self.context()
        for value in values:
            own = self.context()

            def register(value: str = value, own: Registrations = own) -> None:
                plugin = importlib_metadata.EntryPoint(candidate.name, value, candidate.source).load()
                (getattr(plugin, "register", None) or plugin)(own)

            failure = call_foreign(register)
            if isinstance(failure, ForeignError):
                logger.warning(
                    "plugin %s of provider %r is not used: it raised %s", value, candidate.name, failure
                )
                own.unused[f"plugin {value}, which raised {failure},"] = 1
            together.add(own)
        return together

    def adapt(
        self,
        provider: object,
        candidate: ProviderCandidate,
        home: HermesHome,
        contexts: Iterable[Registrations],
        module: str,
    ) -> object:
        """Return a provider of ours around the provider."""
        from hermes_memory_foreign.adapter import adapt
        from hermes_memory_foreign.manifest import manifest_notes

        first, *others = [*contexts] or [self.context()]
        for other in others:
            first.add(other)
        names = [tool.name for tool in first.tools], [name for name, _ in first.hooks]
        first.notes += manifest_notes(_manifest_of(candidate), *names)
        return adapt(provider, candidate.name, home, first, module)

    def may_register_later(self, folder: Path, *, has_register: bool) -> bool:
        """Return True if its `register(ctx)` may call `register_memory_provider`, else record that it does not."""
        if has_register and calls_register(folder):
            return True
        record_no_provider(folder)
        return False

    def missing_module(self, name: str, module: str) -> ProviderError | None:
        """Return the error for a module of Hermes Agent that is not here, None for any other module.

        No package index has the modules of Hermes Agent under their names, so pip can't be the remedy.
        """
        from hermes_memory_foreign.host_modules import hidden_host_module, is_host_module

        if hiding := hidden_host_module(module):
            return ProviderUnavailable(
                f"provider {name!r} needs its host's module {module!r}, which {hiding!r} hides",
                "rename that module, or run from another folder",
            )
        if is_host_module(module):
            return ProviderUnavailable(
                f"provider {name!r} needs {module!r} of Hermes Agent itself, which is not here",
                "ask its author whether it can do without, or use it in Hermes Agent",
            )
        return None

    def commands(self, factory: Callable[[], object], name: str) -> click.Command:
        """Return a command that forwards its arguments to the argparse parsers of a provider."""
        import click

        from hermes_core.cli import Failure
        from hermes_core.kit.cli import without_json

        @without_json("its words are the provider's")
        def run(words: tuple[str, ...]) -> None:
            run_command = getattr(factory(), "run_command", None)
            if run_command is None:  # it subclasses our base class, and is registered for Hermes Agent alone
                raise Failure(f"provider {name!r} has no commands; its tools and settings are all it offers")
            click.get_current_context().exit(run_command(name, words))

        return click.Command(
            name,
            callback=run,
            params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
            context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
            add_help_option=False,
        )

    def register(self, ctx: Any, name: str, host_name: str) -> None:
        """Register a provider of ours as Hermes Agent's memory provider."""
        from hermes_memory_foreign.export import exported_provider

        ctx.register_memory_provider(exported_provider(name, host_name))

    def add_commands(self, parser: argparse.ArgumentParser, name: str, host_name: str) -> None:
        """Let the parser of Hermes Agent forward the arguments after the provider's name to the provider's commands."""
        from hermes_memory_foreign.export_command import forward_commands

        forward_commands(parser, name, host_name)


def _manifest_of(candidate: ProviderCandidate) -> Mapping[str, Any]:
    """Return the content of the plugin.yaml beside a provider, {} without one."""
    path = candidate.path
    if path is None:
        return {}
    return read_manifest(path if path.is_dir() else path.parent)


def _companion_targets(candidate: ProviderCandidate) -> list[str]:
    """Return the targets of further entry points of the provider's distribution, which register no provider."""
    if candidate.is_folder or not candidate.distribution:
        return []
    owner, module = normalise(candidate.distribution), candidate.value.partition(":")[0]
    values = [
        point.value
        for point in installed_entry_points()
        if point.group == PLUGIN_GROUP
        and point.dist is not None
        and normalise(point.dist.name) == owner
        # A package may offer its provider in several groups, and two providers in one.
        and point.value.partition(":")[0] != module
        and (candidate.source != PLUGIN_GROUP or not mentions_provider(point.value))
    ]
    return list(dict.fromkeys(values))
