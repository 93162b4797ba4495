"""The commands `hermes-memory providers new` and `extensions new`: a package made from the cookiecutter template."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from pathlib import Path

import click
from cookiecutter.exceptions import FailedHookException, OutputDirExistsException
from cookiecutter.main import cookiecutter

from hermes_core.cli import Failure
from hermes_core.packages import install_words

_NAME_PATTERN = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")

EXTENSION = "extension"
KINDS = {
    "local": "a SQLite file in the home",
    "http": "a service with an HTTP API",
    "sdk": "a vendor's Python package",
    EXTENSION: "no provider, but a command, an importer and a check",
}
LICENSES = ("MIT", "Apache-2.0", "BSD-3-Clause", "Proprietary")


_directory = click.argument("directory", type=click.Path(file_okay=False, path_type=Path), default=Path())
_name = click.option("--name", help="As people will write it in config.yaml: small letters, digits, hyphens.")
_license = click.option("--license", "license_name", type=click.Choice(LICENSES), help="Its licence.")


@click.command()
@_directory
@_name
@click.option("--kind", type=click.Choice(list(KINDS)), help="Where it stores, or extension.")
@_license
@click.option("-y", "--yes", is_flag=True, help="Do not ask: my-notes, local and MIT for what is not given.")
@click.option("--no-input", is_flag=True, hidden=True, help="The same as --yes.")
def new(
    directory: Path, name: str | None, kind: str | None, license_name: str | None, yes: bool, no_input: bool
) -> None:
    """Make a package for a provider of your own in DIRECTORY, with tests, a page and a CI workflow.

    Asks for what no option says. Exits with 1 if the name can't be used or the package is there already.
    """
    _new(directory, name, kind, license_name, ask=not (yes or no_input))


@click.command("new")
@_directory
@_name
@_license
@click.option("-y", "--yes", is_flag=True, help="Do not ask: my-notes and MIT for what is not given.")
def new_extension(directory: Path, name: str | None, license_name: str | None, yes: bool) -> None:
    """Make a package for an extension of your own in DIRECTORY, with tests, a page and a CI workflow.

    It has a command, an importer and a check for `doctor`. Asks for what no option says. Exits with 1 if the name can't be
    used or the package is there already.
    """
    _new(directory, name, EXTENSION, license_name, ask=not yes)


def _new(directory: Path, name: str | None, kind: str | None, license_name: str | None, *, ask: bool) -> None:
    """Ask for the answers that are missing, make the package, and print how to install it."""
    if ask:
        subject = "extension" if kind == EXTENSION else "provider"
        name = name or click.prompt(f"Name of the {subject}", default="my-notes")
        for choice, meaning in {} if kind else KINDS.items():
            click.echo(f"  {choice:9} {meaning}")
        kind = kind or click.prompt("Kind", type=click.Choice(list(KINDS)), default="local")
        license_name = license_name or click.prompt("Licence", type=click.Choice(LICENSES), default="MIT")
    answers = {
        "name": "my-notes" if name is None else name,
        "kind": kind or "local",
        "license": license_name or "MIT",
    }
    made = make(directory, answers)
    click.echo(f"made {made}")
    # In one call with ours, which pip would otherwise look for on an index.
    kit = install_words("hermes-memory-testing")
    click.echo(f'next: pip install {kit} -e "{made}[test]", then python -m pytest "{made}"')


def _noun(kind: str) -> str:
    return "an extension" if kind == EXTENSION else "a provider"


def template_folder() -> Path:
    """Return the folder of the template: inside the installed package, or beside the package in a clone."""
    inside = Path(__file__).parent / "provider_template"
    return inside if inside.is_dir() else inside.parents[3] / "cookiecutter-provider"


def make(directory: Path, answers: dict[str, str]) -> Path:
    """Make the package below `directory` and return its folder.

    Raises `Failure`, or exits after the template's own hook has printed why it refuses the name.
    """
    _check(answers)
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
        except FailedHookException as exc:
            raise SystemExit(1) from exc
        except OutputDirExistsException as exc:
            raise Failure(
                f"{answers['name']!r} is there already in {str(directory)!r}; choose another name"
            ) from exc
        except OSError as exc:
            raise Failure(f"can't write to {str(directory)!r}: {exc.strerror or exc}") from exc
    return Path(made)


def _check(answers: dict[str, str]) -> None:
    """Raise `Failure` for answers that are more than plain words: cookiecutter runs an answer as a template."""
    name = answers["name"]
    if not _NAME_PATTERN.fullmatch(name):
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")
        hint = f": {better!r} for example" if better else ""
        raise Failure(
            f"{name!r} can't be {_noun(answers['kind'])}'s name; use small letters, digits and single hyphens{hint}"
        )
    for key, allowed in (("kind", KINDS), ("license", LICENSES)):
        if answers[key] not in allowed:
            raise Failure(f"{key} can't be {answers[key]!r}; use one of {', '.join(allowed)}")
