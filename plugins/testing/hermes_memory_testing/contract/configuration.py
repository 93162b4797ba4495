"""Settings, secrets, and what a provider says about itself to setup, doctor and backup."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes_core import Field, HermesError, HermesHome, load_provider
from hermes_core.contract.provider import contract_faults
from hermes_core.kit import ConfigError, load_settings
from hermes_memory_testing.contract.failure import hook_arguments
from hermes_memory_testing.contract.inputs import sample
from hermes_memory_testing.contract.suite import TORTOISE, Run, Suite

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NO_HOME = Path("no-such-home")
_WRONG: dict[Any, Any] = {int: "seven", float: "a lot", bool: "perhaps"}


class ConfigurationChecks(Suite):
    """`settings`, `check`, `backup_paths`, `register_cli`."""

    def test_settings_are_declared_soundly(self) -> None:
        self._native("types and choices of settings")
        faults = [*_field_faults(self._fields())]
        if faults:
            self.fault(
                "; ".join(faults), "write the fields so; setup, docs and validation are made from them"
            )

    def test_a_wrong_value_is_named(self) -> None:
        self._native("settings of ours")
        for field in self._fields():
            wrong = "no such choice" if field.choices else _WRONG.get(field.type)
            if wrong is None or field.secret:
                continue
            self.started()
            run = self.open(self._home_with(field, wrong))
            trouble = run.start(run.session()) if run.accepted else run.health.reason
            if field.name not in trouble:
                self.fault(
                    f"{field.name} is {wrong!r} in its file, and the start says {trouble or 'nothing'!r}",
                    "read settings with kit.load_settings: it names the file, the key and what to write",
                )
            return
        self.not_claimed("no setting that could have a wrong value")

    def test_a_missing_setting_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._native("settings of ours")
        needed = [f for f in self._fields() if f.required and f.default is None and not f.when]
        if not needed:
            self.not_claimed("no setting is required")
        for field in self._fields():
            if field.env:
                monkeypatch.delenv(field.env, raising=False)
        if not self.run.accepted:
            self.not_run("it is not accepted with its settings either")
        bare = HermesHome(self.home.path.with_name("bare"))
        bare.path.mkdir()
        monkeypatch.setenv("HERMES_HOME", str(bare.path))
        run = self.open(bare)
        words = [word for f in needed for word in (f.name, f.env) if word]
        if run.accepted or not any(word in run.health.reason for word in words):
            self.fault(
                f"without {needed[0].name!r} it is {run.health.state}: {run.health.reason or 'no reason given'}",
                "return load_settings(...).availability from is_available: it says what to set and where",
            )

    def test_secrets_stay_secret(self, caplog: pytest.LogCaptureFixture) -> None:
        values = [self.secrets[f.env] for f in self._fields() if f.secret and f.env in self.secrets]
        if not values:
            self.not_claimed("no secret of its settings is given in `secrets`")
        caplog.set_level("DEBUG")
        run, session = self.run, self.started()
        shown = [*self._said(run, session)]
        run.store(TORTOISE, session)
        run.close()
        shown += [("its log", caplog.text), *self._files()]
        for where, text in shown:
            if any(value in text for value in values):
                self.fault(f"a secret shows in {where}", "keep it in .env, and hand it to the client only")

    def test_backup_paths_are_absolute(self) -> None:
        self.started("backup_paths")
        outcome = self.run.ask("backup_paths")
        if outcome.status == "failed":
            self.fault(f"backup_paths: {outcome.error}", "return a list of paths as text")
        relative = [path for path in outcome.value or () if not Path(path).is_absolute()]
        if relative:
            self.fault(f"backup_paths gives {relative[0]!r}", "give absolute paths; a backup runs anywhere")

    def test_its_own_check_is_passed(self) -> None:
        session = self.started("check")
        outcome = self.run.ask("check", session=session)
        if outcome.status == "failed":
            self.fault(f"check: {outcome.error}", "return Check values, ok or not, instead of raising")
        bad = [check for check in outcome.value or () if not check.ok]
        if bad:
            self.fault(
                f"check {bad[0].name!r} is not passed: {bad[0].detail}",
                bad[0].remedy or "see why; doctor will say the same to every user",
            )

    def test_commands_are_added(self) -> None:
        self.started("register_cli")
        arguments = hook_arguments("register_cli", self.run, self.run.session())
        outcome = self.run.ask("register_cli", **arguments)
        if outcome.status == "failed":
            self.fault(f"register_cli: {outcome.error}", "add click commands to the group that is given")
        silent = [name for name, command in arguments["group"].commands.items() if not command.help]
        if silent:
            self.fault(f"command {silent[0]!r} has no help", "write a docstring: it is what --help shows")

    # ------------------------------------------------------------------ private

    def _fields(self) -> Sequence[Field]:
        provider = self.run.provider
        fields: Sequence[Field] = getattr(provider, "settings", ())
        if not fields:
            self.not_claimed("settings")
        return fields

    def _native(self, what: str) -> None:
        if self.foreign:
            self.not_claimed(f"{what} are no part of the contract of Hermes Agent")

    def _home_with(self, field: Field, value: Any) -> HermesHome:
        """A home whose settings file has one wrong value."""
        home = HermesHome(self.home.path.with_name("wrong"))
        self.furnish(home, self._settings)
        home.provider_json(self.run.name).write_text(json.dumps({**self._settings, field.name: value}))
        return home

    def _said(self, run: Run, session: Any) -> Iterator[tuple[str, str]]:
        """Yield each text that the provider shows to the model or to people, after the name of its place."""
        yield "the system prompt", run.manager.build_system_prompt(session)
        yield "the schemas of its tools", str(run.manager.get_all_tool_schemas())
        yield "its repr", repr(run.provider)
        if run.claims("prefetch"):
            yield "recall", run.recall(TORTOISE.question, session).render()
        for schema in run.manager.get_all_tool_schemas():
            call = hook_arguments("handle_tool_call", run, session)["call"]
            for arguments in (sample(schema["parameters"]), {}):
                made = type(call)(schema["name"], arguments)
                yield f"an answer of {schema['name']}", run.manager.handle_tool_call(made, session)
        with self.outage() or nullcontext():
            for hook in filter(run.claims, ("sync_turn", "prefetch", "handle_tool_call")):
                outcome = run.ask(hook, **hook_arguments(hook, run, session))
                yield f"what {hook} says in an outage", f"{outcome.error}{outcome.value}"

    def _files(self) -> Iterator[tuple[str, str]]:
        for folder in (self.home.path, self.person, self.folder):
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path != self.home.env_file:
                    yield f"the file {path.name!r}", path.read_bytes().decode("utf-8", "replace")


def _field_faults(fields: Sequence[Field]) -> Iterator[str]:
    names = [field.name for field in fields]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{name} is declared twice"
    for field in fields:
        if not str(field.name).isidentifier():
            yield f"{field.name!r} is no name: letters, digits and '_'"
        if field.env and not _VARIABLE.fullmatch(field.env):
            yield f"{field.name} has the variable {field.env!r}, which no shell can set"
        if field.secret and (not field.env or field.default):
            yield f"the secret {field.name} needs a variable (env) and must have no default"
        if not field.help.strip():
            yield f"{field.name} has no help"
        yield from _default_faults(field)
        for other in field.when:
            if other not in names:
                yield f"{field.name} depends on {other!r}, which is not declared"


def _default_faults(field: Field) -> Iterator[str]:
    try:
        load_settings((replace(field, clamp=False),), NO_HOME, "demo", {})
    except ConfigError as exc:
        yield exc.message


GROUP = "hermes_core.providers"
CORE = "hermes-memory-core"

_ANYBODYS = frozenset(
    {"agent", "common", "config", "docs", "examples", "helpers", "hermes", "memory", "plugins", "provider"}
    | {"providers", "scripts", "src", "test", "tests", "tools", "utils"}
)
"""Names of top-level modules that two distributions are likely to share, so that one overwrites the other."""

_WATCHED = """
import logging, os, signal, sys, threading
seen = []
def shared():
    root = logging.root
    return {{
        "the environment": dict(os.environ),
        "the working folder": os.getcwd(),
        "the root logger": (root.level, list(root.handlers), root.manager.disable),
        "handlers of signals": {{number: signal.getsignal(number) for number in signal.valid_signals()}},
        "sys.path": list(sys.path),
        "sys.excepthook": sys.excepthook,
        "threading.excepthook": threading.excepthook,
    }}
before = shared()
sys.addaudithook(lambda event, _: seen.append(event) if event in {events!r} else None)
import {module}
seen += [what for what, now in shared().items() if now != before[what]]
print(threading.active_count() - 1, sorted(set(seen)))
"""
_EVENTS = (
    "socket.connect",
    "socket.getaddrinfo",
    "subprocess.Popen",
    "os.system",
    "os.fork",
    "os.posix_spawn",
)


class PackagingChecks(Suite):
    """Checks for a provider that is installed as a distribution, also in editable form."""

    def test_the_entry_point_loads_as_installed(self) -> None:
        point = self._entry_point()
        if contract_faults(self.run.provider):
            self.not_run("its form is not accepted")
        try:
            provider = load_provider(point.name, self.home).factory()
        except HermesError as exc:
            self.fault(
                f"the entry point {point.name} = {point.value} does not load: {exc}", "correct pyproject.toml"
            )
        if type(provider).__name__ != type(self.run.provider).__name__:
            self.fault(
                f"the entry point gives a {type(provider).__name__}, the suite tests a {type(self.run.provider).__name__}",
                "let make_provider return what the entry point names",
            )

    def test_the_entry_point_has_the_name_of_the_provider(self) -> None:
        point = self._entry_point()
        name = self.run.provider.name
        if point.name != name:
            self.fault(
                f"the entry point is {point.name!r} and the provider calls itself {name!r}",
                "use one name: it is the value of memory.provider and of the settings file",
            )

    def test_the_metadata_helps_to_find_it(self) -> None:
        metadata = self._distribution().metadata.json
        wanted = {"summary": "description", "requires_python": "requires-python"}
        missing = [key for field, key in wanted.items() if not metadata.get(field)]
        if not metadata.get("license_expression") and not metadata.get("license"):
            missing.append("license")
        if missing:
            self.fault(f"pyproject.toml does not say {', '.join(missing)}", "add it below [project]")

    def test_it_asks_for_the_core(self) -> None:
        if self.foreign:
            self.not_claimed("it is written for another host")
        needs = self._distribution().requires or []
        if not any(need.lower().replace("_", "-").startswith(CORE) for need in needs):
            self.fault(f"it does not depend on {CORE}", f'add "{CORE}" to dependencies')

    def test_its_types_are_shipped(self) -> None:
        self._distribution()
        spec = importlib.util.find_spec(self._module())
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        if not any(Path(folder, "py.typed").is_file() for folder in folders):
            self.fault(f"{self._module()} has no py.typed", "add an empty file py.typed to the package")

    def test_its_modules_have_names_of_their_own(self) -> None:
        files = self._distribution().files or []
        tops = {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py"}
        clash = sorted(tops & _ANYBODYS)
        if clash:
            self.fault(
                f"it installs a top-level module {clash[0]!r}",
                "put everything into one package named after the provider",
            )

    def test_its_import_starts_nothing(self) -> None:
        self._distribution()
        code = _WATCHED.format(events=frozenset(_EVENTS), module=self._module())
        # Generous, because an SDK with native libraries imports slowly on a busy machine.
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        if done.returncode:
            self.not_run(f"a new process can't import {self._module()}: {done.stderr.strip()[-200:]}")
        *printed, last = done.stdout.strip().splitlines()
        if printed:
            self.fault(
                f"importing {self._module()} prints {printed[0][:80]!r}",
                "use logging: programs and MCP clients read what the host prints",
            )
        if last != "0 []":
            self.fault(
                f"importing {self._module()} starts threads, reaches out or changes the process: {last}",
                "do it in initialize, and import an SDK that does it there; every listing of commands may import the package",
            )

    # ------------------------------------------------------------------ private

    def _module(self) -> str:
        provider: Any = getattr(self.run.provider, "wrapped", self.run.provider)
        return type(provider).__module__.partition(".")[0]

    def _distribution(self) -> importlib.metadata.Distribution:
        """The distribution that brings the provider's module."""
        if self.run.provider is None:
            self.not_run("it can't be made")
        if self.distribution:
            return importlib.metadata.distribution(self.distribution)
        point = self._own_point()
        if point is None or point.dist is None:
            self.not_claimed("it is not installed as a package")
        return point.dist

    def _entry_point(self) -> importlib.metadata.EntryPoint:
        self._distribution()
        if self.foreign:
            self.not_claimed("it is found by the ways of Hermes Agent")
        point = self._own_point()
        if point is None:
            self.fault(
                f"{self.distribution} has no entry point in {GROUP!r}",
                f'add [project.entry-points."{GROUP}"] to pyproject.toml',
            )
        return point

    def _own_point(self) -> importlib.metadata.EntryPoint | None:
        """That of the provider; of several in its package the one that has its name, or names its class."""
        provider, module = self.run.provider, self._module()
        points = importlib.metadata.entry_points(group=GROUP)
        mine = [p for p in points if p.value.partition(":")[0].partition(".")[0].strip() == module]
        ranked = sorted(
            mine, key=lambda p: (p.name != provider.name, not p.value.endswith(f":{type(provider).__name__}"))
        )
        return next(iter(ranked), None)
