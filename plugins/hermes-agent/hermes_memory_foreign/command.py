"""`hermes-memory plugins`: plugin folders of the home, from GitHub, a catalog, a folder or an archive."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import click

from hermes_core import HermesHome, discover_providers
from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.output import print_document, print_done, print_result, print_table, wants_json, warn
from hermes_core.cli.shell import complete_provider
from hermes_core.config import load_config
from hermes_core.errors import HermesError, SetupFailed
from hermes_core.home import FOLDER_PREFIX, expanded
from hermes_core.kit import printable
from hermes_core.kit.cli import confirm, yes_option
from hermes_core.loader.discover import FOLDERS, ProviderEntry, discover
from hermes_core.safety.redact import looks_like_key
from hermes_memory_foreign.export_command import export
from hermes_memory_foreign.plugin_folders import (
    InstalledPlugin,
    install_plugin,
    plugin_folder,
    plugin_records,
    remove_plugin,
    selector_of,
    update_plugin,
)
from hermes_memory_foreign.plugin_source import (
    Catalog,
    PluginSource,
    catalog_entry,
    parse_source,
    refuse_removed,
)


@click.group(cls=Group)
def plugins() -> None:
    """Install, update, remove and list plugin folders of the home; hand a provider to Hermes Agent."""


plugins.add_command(export)


@plugins.command("install")
@click.argument("source")
@click.option(
    "--name", default="", help="Its name here (default: the name in its plugin.yaml, else of its folder)."
)
@click.option("--ref", default="", help="A commit, branch or tag; a whole commit id pins it.")
@click.option("--force", is_flag=True, help="Replace a plugin of that name.")
@click.option("--allow-removed", is_flag=True, help="Also what the catalog's maintainers removed.")
@click.option(
    "--catalog",
    default="",
    metavar="FILE",
    help="A catalog in place of Hermes Agent's: a file of YAML or JSON with pinned commits and removed entries, a folder, "
    "or an address.",
)
@click.option(
    "--enable/--no-enable",
    default=None,
    help="Taken from lines written for Hermes Agent: a provider is chosen by `memory setup` and needs no enabling.",
)
@click.pass_context
def install_folder(
    ctx: click.Context,
    source: str,
    name: str,
    ref: str,
    force: bool,
    allow_removed: bool,
    catalog: str,
    enable: bool | None,
) -> None:
    """Install the plugin SOURCE into `plugins/` of the home, and load it once in a process of its own.

    SOURCE is OWNER/REPO or OWNER/REPO/FOLDER on GitHub, a git URL, a name of Hermes Agent's catalog (at the commit that
    was reviewed), a folder, or an archive (.tar.gz, .zip) on this machine or at a URL. Only a SOURCE that is elsewhere
    uses the network.

    A plugin that does not load is not installed. If packages that its plugin.yaml names are missing, it is installed and
    listed as unavailable: pip is never run here, and `hermes-memory memory setup NAME` installs them after a question.
    """
    del enable  # the report says how a provider is chosen
    if "/" not in source and looks_like_key(source):  # the catalog would be asked for it
        raise Failure("the source looks like a key; write the name of a plugin, and nothing was downloaded")
    home = home_of(ctx)
    listed = Catalog(str(expanded(catalog).absolute()) if catalog and "://" not in catalog else catalog)
    with _interruptible():
        place = _resolved(parse_source(source, ref), listed, allow_removed=allow_removed)
        installed = install_plugin(home, place, name=name, force=force, catalog=listed)
    _report(home, [installed])


@plugins.command("update")
@click.argument("name", required=False)
@click.pass_context
def update_folder(ctx: click.Context, name: str | None) -> None:
    """Update the plugin NAME from where it came, or all plugins. A version that does not load changes nothing.

    A plugin of the catalog moves to the commit that the catalog names now; one that was pinned by --ref does not move.
    """
    home = home_of(ctx)
    if name:
        with _interruptible():
            _report(home, [update_plugin(home, name.removeprefix(FOLDER_PREFIX))])
        return
    updated, failures = [], []
    # Hermes Agent records plugins of other sorts too, and a person may have deleted a folder.
    here = {place.path.name for place in discover(home) if place.is_folder and place.path}
    for one, record in plugin_records(home).items():
        if one not in here or (record.get("pinned") and not record.get("catalog_name")):
            continue
        try:
            with _interruptible():
                updated.append(update_plugin(home, one))
        except HermesError as exc:
            failures.append(f"{one}: {exc}")
    _report(home, updated)
    if not (updated or failures or wants_json()):
        click.echo("No plugin folder can be updated.")
    if failures:
        raise Failure("; ".join(failures))


@plugins.command("enable")
@click.argument("name", shell_complete=complete_provider)
@click.pass_context
def enable_folder(ctx: click.Context, name: str) -> None:
    """Say how to choose the plugin NAME. A provider that is installed needs no enabling, as in Hermes Agent."""
    folder = plugin_folder(home_of(ctx), name)
    step = f"hermes-memory memory setup {selector_of(folder.name)}"
    print_done(f"{folder.name} is installed and needs no enabling\nnext: {step}", name=folder.name)


@plugins.command("remove")
@click.argument("name", shell_complete=complete_provider)
@yes_option
@click.pass_context
def remove_folder(ctx: click.Context, name: str) -> None:
    """Remove the plugin folder NAME with all that is in it. The active provider is not removed."""
    home = home_of(ctx)
    try:
        folder = plugin_folder(home, name)
    except SetupFailed:
        if package := _package_of(home, name):
            raise Failure(
                f"{name!r} is the Python package {package!r}; run: hermes-memory providers uninstall {name}"
            ) from None
        raise
    confirm(f"Remove {str(folder)!r} and what it stored there?")
    with _interruptible():
        removed = remove_plugin(home, name)
    print_done(f"removed {removed}", path=removed)


@plugins.command("list")
@click.pass_context
def list_folders(ctx: click.Context) -> None:
    """List what providers come from: plugin folders of the home with their sources, and Python packages."""
    home = home_of(ctx)
    entries = [one for one in _providers(home) if one.installed]
    records = plugin_records(home)
    rows = [(_origin(one, records), one.version, one.name, one.state, one.path) for one in entries]
    columns = ("from", "version", "provider", "state", "where")
    print_result(entries, lambda: print_table("", columns, rows, "No provider is installed."))


def _origin(entry: ProviderEntry, records: dict[str, dict[str, Any]]) -> str:
    """Return where a provider came from: its package, or the source and commit of its folder."""
    if entry.distribution:
        return entry.distribution
    record = records.get(entry.name.removeprefix(FOLDER_PREFIX), {}) if entry.source == FOLDERS[0] else {}
    source, commit = str(record.get("source") or ""), str(record.get("revision") or "")
    if record.get("catalog_name"):
        source = f"catalog: {record['catalog_name']}"
    return f"{source} {commit[:12]}".strip() or "a folder"


def _resolved(source: PluginSource, catalog: Catalog, *, allow_removed: bool) -> PluginSource:
    """Return the source with the catalog's entry looked up, and say whose code will run."""
    if source.is_local:
        return source
    if source.kind == "catalog":
        source = catalog_entry(source, catalog)
        warn([f"from the catalog: {source.about}"])
    else:
        warn([f"{source.address} was not reviewed for the catalog; its code runs with your rights"])
    warn(filter(None, ["" if allow_removed else refuse_removed(source, catalog)]))
    return source


def _report(home: HermesHome, installed: Sequence[InstalledPlugin]) -> None:
    """Print each plugin with its state, and what to do next."""
    if wants_json():
        folders = {str(one.folder) for one in installed}
        print_document([entry for entry in _providers(home) if entry.path in folders])
        return
    for one in installed:
        version = f" at {one.revision[:12]}" if one.revision else ""
        if not one.changed:
            click.echo(f"{one.name}{version} is up to date")
            continue
        click.echo(printable(f"{one.name}{version} is in {one.folder}"))
        if one.selector != one.name:
            click.echo(f"{one.name} means the bundled provider; {one.selector} chooses this folder")
        next_step = f"hermes-memory memory setup {one.selector}"
        if one.load.state == "unavailable":
            click.echo(printable(f"unavailable: {one.load.reason}"))
            if one.load.remedy and next_step not in one.load.remedy:
                click.echo(printable(f"first: {one.load.remedy}"))
        click.echo(f"next: {next_step}")


def _providers(home: HermesHome) -> list[ProviderEntry]:
    """Return the catalog of a home. Nothing is imported."""
    return discover_providers(home, active=load_config(home).selected_providers)


def _package_of(home: HermesHome, name: str) -> str:
    return next(
        (
            one.distribution
            for one in _providers(home)
            if one.installed and one.name.casefold() == name.casefold()
        ),
        "",
    )


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM interrupt as Ctrl-C does, so that what was begun is undone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
