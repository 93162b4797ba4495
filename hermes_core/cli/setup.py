"""`hermes-memory memory setup`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
from msgspec import Struct, field

from hermes_core.cli import Failure, home_of
from hermes_core.cli.identity import add_owners
from hermes_core.cli.output import console, for_terminal, print_table, warn
from hermes_core.cli.providers import about
from hermes_core.cli.shell import complete_provider, offer_alias
from hermes_core.config import Credentials, load_config, provider_name
from hermes_core.config.keys import COMPOSITE
from hermes_core.config.schema import expected
from hermes_core.contract.values import Field
from hermes_core.errors import ConfigError, ProviderUnconfigured, SessionError, SetupFailed
from hermes_core.home import HermesHome
from hermes_core.kit.cli import has_yes, yes_option
from hermes_core.kit.settings import read_value
from hermes_core.loader.discover import ProviderEntry
from hermes_core.loader.load import LoadedProvider, load_provider
from hermes_core.manager.composite import routes_of
from hermes_core.memory import open_memory
from hermes_core.safety.redact import redact
from hermes_core.safety.terminal import hanging, printable
from hermes_core.sessions.owners import stored_users
from hermes_core.setup.answers import (
    Answers,
    SavedAnswer,
    parse_pairs,
    persist,
    require_complete,
    select_provider,
    unstorable_secrets,
)
from hermes_core.setup.candidate import (
    choices,
    missing_extras,
    missing_requirements,
    questions,
    require_available,
    run_wizard,
    try_out,
)
from hermes_core.setup.installer import install_steps, is_own, missing_dependencies
from hermes_core.shell_words import shell_line

BUILTIN = "built-in only"


@click.command()
@click.argument("name", required=False, shell_complete=complete_provider)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Answer one setting, also a secret; as often as needed.",
)
@yes_option
@click.option("--no-check", is_flag=True, help="Do not start the provider and run its self-test at the end.")
@click.pass_context
def setup(ctx: click.Context, name: str | None, pairs: tuple[str, ...], no_check: bool) -> None:
    """Choose a memory provider and make it ready: packages, settings, secrets, a real try.

    Without NAME it shows what can be chosen; Enter keeps what is chosen now. Settings go to the provider's file in the
    home, secrets to .env. Nothing is written before all answers are there, and the provider becomes the active one only
    at the very end, after it was started and passed its self-test. `composite` sets up each of `composite.members`.
    With --yes, which needs NAME, what is missing is installed and what --set does not give stays as it is.
    """
    home, yes = home_of(ctx), has_yes()
    if name is None and (yes or pairs):
        raise click.UsageError("name the provider to set up without questions")
    try:
        chosen = name if name is not None else _pick(home)
        none = chosen == BUILTIN or not provider_name(chosen)
        if none:
            select_provider(home, "")
            click.echo(f"memory provider: {BUILTIN}")
        elif chosen == COMPOSITE:
            for member in routes_of(load_config(home).composite):
                _ProviderSetup(home, member, pairs, ask=not yes, check=not no_check).run()
            select_provider(home, COMPOSITE)
            click.echo(f"memory provider: {COMPOSITE}, from the next start on")
        else:
            _ProviderSetup(home, chosen, pairs, ask=not yes, check=not no_check).run()
    except click.Abort:
        raise Failure("cancelled; nothing was changed") from None
    if not yes:
        _ask_owners(home)
    if not yes and not none:
        offer_alias()


class _ProviderSetup(Struct):
    """The setup of one provider.

    Attributes:
        pairs: Answers of `--set`.
        ask: True to ask for what is missing.
        check: True to start the provider at the end.
        keys: Variables without which the provider can't be made, with their values.
    """

    home: HermesHome
    name: str
    pairs: Sequence[str]
    ask: bool
    check: bool
    keys: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Run all steps in order. An error leaves `memory.provider` unchanged."""
        # Programs are only named: each system installs them its own way.
        needs = missing_requirements(self.home, self.name)
        for tool in needs.tools:
            how = tool.install or "see the provider's documentation"
            warn(
                [f"{self.name} needs the program {tool.name!r}, which does not work here; install it: {how}"]
            )
        install(self.home, self.name, needs.packages, ask=self.ask)
        try:
            self._configure(self._load())
        finally:
            for variable in self.keys:
                os.environ.pop(variable, None)

    def _load(self) -> LoadedProvider:
        """Load the provider. If it can't be made without variables, take them from `--set` or ask, and put them into the
        environment.
        """
        while True:
            try:
                return load_provider(self.name, self.home)
            except ProviderUnconfigured as exc:
                values = {name: self._key(name, exc) for name in exc.variables if name not in self.keys}
                if not values:
                    raise
            self.pairs = [pair for pair in self.pairs if pair.partition("=")[0] not in values]
            self.keys |= values
            os.environ.update(values)

    def _key(self, variable: str, error: ProviderUnconfigured) -> str:
        settings = dict(pair.partition("=")[::2] for pair in self.pairs)
        if variable in settings:
            return settings[variable]
        if not self.ask:
            raise error
        click.echo(hanging(error.message))
        return _ask_secret(self.home, Field(variable, env=variable, secret=True, required=True)) or ""

    def _configure(self, loaded: LoadedProvider) -> None:
        """Let the wizard of the provider, or the answers, make it ready, and select it."""
        name = loaded.entry.name
        if self.ask and not self.pairs and (finished := run_wizard(self.home, loaded)) is not None:
            if not finished:
                ended = f"the setup of {name} ended without choosing it"
                raise Failure(f"{ended}; the memory provider stays as it was")
            self._save_keys()
            self._select(load_provider(name, self.home))
            return
        answers = questions(self.home, loaded)
        parse_pairs(answers, self.pairs)
        if self.ask:
            _ask(self.home, answers)
        answers.settle()
        require_complete(answers, name)
        install(self.home, name, missing_extras(loaded, answers), ask=self.ask)
        self._save_keys()
        _show_saved(persist(self.home, name, answers, loaded.factory()))
        self._select(loaded)

    def _save_keys(self) -> None:
        for variable, value in self.keys.items():
            Credentials(self.home).set(variable, value)
            click.echo(f"saved {variable} in .env")

    def _select(self, loaded: LoadedProvider) -> None:
        """Try the provider and select it."""
        if self.check:
            _try(self.home, loaded, ask=self.ask)
        else:
            require_available(self.home, loaded.entry.name)
        select_provider(self.home, loaded.entry.name)
        click.echo(f"memory provider: {loaded.entry.name}, from the next start on")


def _pick(home: HermesHome) -> str:
    """Ask for a provider. Enter keeps the present one."""
    entries = choices(home)
    config = load_config(home)
    active = config.memory.provider
    print_table("", ("", "provider", "state", "about"), list(_offers(entries, config.selected_providers)), "")
    names = [BUILTIN, *(entry.name for entry in entries)]
    present = active or BUILTIN
    while True:
        answer = click.prompt("Provider, by number or name", default=present).strip()
        if answer.isdecimal() and int(answer) < len(names):
            return names[int(answer)]
        if answer in (*names, present):
            return str(answer)
        click.echo(f"{answer!r} is none of them.")


def _offers(entries: Sequence[ProviderEntry], active: Sequence[str]) -> Iterator[tuple[object, ...]]:
    yield 0, BUILTIN, "" if active else "active", "MEMORY.md, USER.md and past sessions"
    for number, entry in enumerate(entries, 1):
        state = "active" if entry.name in active else ""
        where = state if entry.installed else "not installed"
        yield number, entry.name, where, about(entry) or entry.reason


def _ask_owners(home: HermesHome) -> None:
    """Ask for the person's ids on other platforms if the home has notes and names nobody."""
    with open_memory(home, provider="") as opened:
        if opened.config.identity.owners or not opened.problem_log.of_sharing():
            return
        others = stored_users(opened.sessions.database, limit=5)
    known = f" ({', '.join(others)} wrote)" if others else ""
    click.echo(
        printable(f"The notes of this home are yours alone. Do you write from another platform too?{known}")
    )
    while True:
        answer = click.prompt(
            "Your ids there, as telegram:123, with commas; Enter for none", default="", show_default=False
        )
        ids = [one.strip() for one in str(answer).split(",") if one.strip()]
        try:
            if ids:
                click.echo(printable(add_owners(home, ids)))
            return
        except SessionError as exc:
            click.echo(hanging(str(exc)))


def install(home: HermesHome, name: str, packages: Sequence[str], *, ask: bool) -> None:
    """Show what a provider needs and where it comes from, and install it; with `ask`, after a question."""
    for step in install_steps(home, packages):
        listed = ", ".join(step.packages)
        click.echo(printable(f"{listed} comes from {step.origin}"))
        click.echo(printable(f"$ {redact(shell_line(step.command))}"))
        if ask:
            click.confirm(f"{name} needs {listed}. Install it now?", default=True, abort=True)
        with _spinner(f"installing {listed}"):
            step.run()
        click.echo(f"installed: {listed}")
    # Our own packages were installed alone: pip would ask an index for those of them that they need.
    if further := missing_dependencies(filter(is_own, packages)):
        install(home, name, further, ask=ask)


def _spinner(text: str) -> AbstractContextManager[object]:
    """Return a context that shows a turning sign with `text` on a terminal, and nothing elsewhere."""
    if not for_terminal():
        return nullcontext()
    from rich.text import Text

    return console().status(Text(text))  # as a Text, since brackets are extras and no markup


def _ask(home: HermesHome, answers: Answers) -> None:
    """Ask for the settings that --set did not give, in order. An answer may make further settings necessary."""
    for one in unstorable_secrets(answers.fields):
        warn([f"{one.name} is a secret that names no variable: keep it as the provider's documentation says"])
    done = {*answers.new, *(one.name for one in unstorable_secrets(answers.fields))}
    while True:
        left = next((one for one in answers.asked() if one.name not in done), None)
        if left is None:
            return
        done.add(left.name)
        answer = _ask_secret(home, left) if left.secret else _ask_setting(answers, left)
        if answer is not None:
            answers.give(left.name, answer)


def _ask_setting(answers: Answers, field: Field) -> Any:
    """Ask for a setting. Return None if the present value stays."""
    present = answers.known.get(field.name)
    shown = answers.default(field) if present is None else present
    _explain(field)
    while True:
        raw = _prompt(field, shown)
        if raw in (None, "") and not field.required:
            return None
        try:
            value = read_value(field, raw)
        except ConfigError as exc:
            click.echo(hanging(str(exc)))
            continue
        return None if value == present else value


def _prompt(field: Field, shown: Any) -> Any:
    label = f"  {field.name}"
    if field.type is bool:
        return click.confirm(label, default=bool(shown))
    kind = click.Choice([str(one) for one in field.choices]) if field.choices else str
    default = "" if shown is None else str(shown)
    clean = redact(default)
    label += "" if clean == default else f" [{clean}]"
    suggested = default if default or not field.required else None
    return click.prompt(label, default=suggested, show_default=clean == default, type=kind)


def _ask_secret(home: HermesHome, field: Field) -> str | None:
    """Ask for a secret. Return None if the present one stays."""
    present = Credentials(home).masked(field.env)
    _explain(field)
    keeps = f"Enter keeps {present}" if present else "" if field.required else "Enter leaves it out"
    label = f"  {field.env}{f' ({keeps})' if keeps else ''}"
    while True:
        answer = str(click.prompt(label, default="", show_default=False, hide_input=True)).strip()
        if answer:
            return answer
        if present or not field.required:
            return None
        click.echo("  it is required")


def _explain(field: Field) -> None:
    parts = [field.help.rstrip(".")] if field.help else []
    if field.minimum is not None or field.maximum is not None:
        parts.append(expected(field))
    if field.url:
        parts.append(f"get it at {field.url}")
    if parts:
        click.echo(printable("; ".join(parts)))


def _show_saved(saved: Sequence[SavedAnswer]) -> None:
    for one in saved:
        click.echo(f"saved {one.name} in {one.place}")
    warn(f"{one.name}: {one.note}" for one in saved if one.note)


def _try(home: HermesHome, loaded: LoadedProvider, *, ask: bool) -> None:
    """Start the provider and run its self-test. If that fails, it is selected only if the person confirms."""
    with _spinner("trying it"):
        findings = try_out(home, loaded)
    for finding in findings:
        state = "FAILED" if finding.failed else finding.state
        click.echo(printable(f"{state}  {finding.what}: {finding.detail}"))
    wrong = [finding for finding in findings if finding.failed]
    if wrong and not (ask and click.confirm("It does not work yet. Make it the active one all the same?")):
        fault = "; ".join(filter(None, (wrong[0].detail, wrong[0].remedy)))
        raise SetupFailed(
            f"{loaded.entry.name} does not work yet, so it was not made the active one: {fault}",
            "correct that and run setup again; what was saved stays",
        )
