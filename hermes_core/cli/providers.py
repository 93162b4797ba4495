"""`hermes-memory providers`, and the commands that the active provider brings."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import re
import shutil
import tempfile
from pathlib import Path

import click

import hermes_core
from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.output import finish, json_option, print_document, print_table
from hermes_core.home import FOLDER_PREFIX, HermesHome
from hermes_core.kit.text import clip, fold_space
from hermes_core.loader.discover import ProviderEntry
from hermes_core.loader.hermes_agent.registration import run_host_command
from hermes_core.loader.load import LoadedProvider, load_provider
from hermes_core.manager.providers import register_commands
from hermes_core.memory import open_memory
from hermes_core.packages import TESTING, extra_remedy, install_words
from hermes_core.safety.terminal import printable

# Characters of the line about a provider. Authors write whole paragraphs into a description.
MAX_ABOUT_CHARS = 100

_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")

_HIDDEN = ("shadowed", "blocked")


@click.group(
    cls=Group,
    invoke_without_command=True,
    lazy={
        "install": "hermes_core.cli.packages:install_packages",
        "uninstall": "hermes_core.cli.packages:uninstall_package",
    },
)
@click.option("--all", "show_all", is_flag=True, help="Also those that are shadowed or blocked.")
@json_option
@click.pass_context
def providers(ctx: click.Context, show_all: bool, as_json: bool) -> None:
    """List the memory providers that are installed, with their state and its reason.

    Only the active provider is imported. Exits with 3 when the configured one does not work.
    """
    if ctx.invoked_subcommand is not None:
        return
    with open_memory(home_of(ctx)) as memory:
        entries, problems = memory.providers(), memory.problems()
    shown = [entry for entry in entries if show_all or entry.state not in _HIDDEN]
    if as_json:
        print_document(shown)
    else:
        rows = [(e.name, e.state, e.version, about(e), e.source, e.reason) for e in shown]
        columns = ("name", "state", "version", "about", "source", "reason")
        print_table("", columns, rows, "No provider is installed.")
        for line in (f"{entry.name}: {note}" for entry in shown for note in entry.notes):
            click.echo(printable(line))
    finish(ctx, problems)


def about(entry: ProviderEntry) -> str:
    """Return in one line what a provider is, "" if nothing says it."""
    return clip(fold_space(entry.description), MAX_ABOUT_CHARS)


def provider_commands(home: HermesHome, name: str) -> click.Command:
    """Return the commands of the active provider under its name. Raises `ProviderError` if it does not load."""
    loaded = load_provider(name, home)
    name = name.removeprefix(FOLDER_PREFIX)
    if loaded.entry.kind == "hermes_agent":
        return _forwarding_command(loaded, home, name)
    group = Group(name, help=f"Commands of the memory provider {name!r}.")
    result = register_commands(loaded.factory, name, group)
    if result.status in ("failed", "late"):
        raise Failure(f"provider {name!r} has no commands: {result.error}")
    return group


def _forwarding_command(loaded: LoadedProvider, home: HermesHome, name: str) -> click.Command:
    """Return a command that forwards its arguments to the argparse parsers of a provider for Hermes Agent."""

    def run(words: tuple[str, ...]) -> None:
        click.get_current_context().exit(run_host_command(loaded.factory(), home, name, words))

    return click.Command(
        name,
        callback=run,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
        add_help_option=False,
    )


KINDS = {
    "local": "a SQLite file in the home",
    "http": "a service with an HTTP API",
    "sdk": "a vendor's Python package",
}
LICENSES = ("MIT", "Apache-2.0", "BSD-3-Clause", "Proprietary")


@providers.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=Path())
@click.option("--name", help="As people will write it in config.yaml: small letters, digits, hyphens.")
@click.option("--kind", type=click.Choice(list(KINDS)), help="Where it stores.")
@click.option("--license", "license_name", type=click.Choice(LICENSES), help="Its licence.")
@click.option("--yes", is_flag=True, help="Do not ask: my-notes, local and MIT for what is not given.")
@click.option("--no-input", is_flag=True, hidden=True, help="The same as --yes.")
def new(
    directory: Path, name: str | None, kind: str | None, license_name: str | None, yes: bool, no_input: bool
) -> None:
    """Make a package for a provider of your own in DIRECTORY, with tests, a page and a CI workflow.

    Asks for what no option says. Exits with 1 if the name can't be used or the package is there already.
    """
    if importlib.util.find_spec("cookiecutter") is None:
        raise Failure(f"cookiecutter is not installed; run: {extra_remedy('template')}")
    if not (yes or no_input):
        name = name or click.prompt("Name of the provider", default="my-notes")
        for choice, meaning in {} if kind else KINDS.items():
            click.echo(f"  {choice:6} {meaning}")
        kind = kind or click.prompt("Where it stores", type=click.Choice(list(KINDS)), default="local")
        license_name = license_name or click.prompt("Licence", type=click.Choice(LICENSES), default="MIT")
    answers = {
        "name": "my-notes" if name is None else name,
        "kind": kind or "local",
        "license": license_name or "MIT",
    }
    made = make(directory, answers)
    click.echo(f"made {made}")
    # In one call with ours, which pip would otherwise look for on an index.
    kit = install_words(TESTING)
    click.echo(f'next: pip install {kit} -e "{made}[test]", then python -m pytest "{made}"')


def template_folder() -> Path:
    """Return the folder of the template: inside the installed package, or beside the package in a clone."""
    inside = Path(hermes_core.__file__).parent / "provider_template"
    return inside if inside.is_dir() else inside.parents[1] / "cookiecutter-provider"


def make(directory: Path, answers: dict[str, str]) -> Path:
    """Make the package below `directory` and return its folder.

    Raises `Failure`, or exits after the template's own hook has printed why it refuses the name.
    """
    _check(answers)
    cookiecutter = importlib.import_module("cookiecutter.main").cookiecutter
    errors = importlib.import_module("cookiecutter.exceptions")
    # Else its own line would stand beside the hook's.
    logging.getLogger("cookiecutter").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as scratch:
        # The answers are all here: settings and replay files of the person's own cookiecutter are left alone.
        config = Path(scratch, "config.yaml")
        config.write_text(f"replay_dir: {scratch!r}\ncookiecutters_dir: {scratch!r}\n", encoding="utf-8")
        # pip has compiled what it could of an installed template.
        clean = shutil.ignore_patterns("__pycache__")
        source = shutil.copytree(template_folder(), Path(scratch, "template"), ignore=clean)
        try:
            made = cookiecutter(
                str(source),
                no_input=True,
                extra_context=answers,
                output_dir=str(directory),
                config_file=str(config),
            )
        except errors.FailedHookException as exc:
            raise SystemExit(1) from exc
        except errors.OutputDirExistsException as exc:
            raise Failure(
                f"{answers['name']!r} is there already in {str(directory)!r}; choose another name"
            ) from exc
        except OSError as exc:
            raise Failure(f"can't write to {str(directory)!r}: {exc.strerror or exc}") from exc
    return Path(made)


def _check(answers: dict[str, str]) -> None:
    """Raise `Failure` for answers that are more than plain words: cookiecutter runs an answer as a template."""
    name = answers["name"]
    if not _NAME.fullmatch(name):
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")
        hint = f": {better!r} for example" if better else ""
        raise Failure(
            f"{name!r} can't be a provider's name; use small letters, digits and single hyphens{hint}"
        )
    for key, allowed in (("kind", KINDS), ("license", LICENSES)):
        if answers[key] not in allowed:
            raise Failure(f"{key} can't be {answers[key]!r}; use one of {', '.join(allowed)}")
