"""Extensions: discovery, load control, guarded hooks, and the names that the core knows of ours."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import importlib_metadata
import pytest

from hermes_core import hookimpl, open_memory
from hermes_core.cli import Group, main
from hermes_core.config import parse_config
from hermes_core.contract.extensions import EXTENSION_GROUP, CommandEntry, HomePart, IndexEntry, Registrations
from hermes_core.health.doctor import examine_extensions
from hermes_core.health.finding import Finding
from hermes_core.home import HermesHome
from hermes_core.loader.extensions import (
    Extensions,
    extension_remedy,
    import_target,
    load_extensions,
    missing_extensions,
    part_fault,
)
from hermes_core.packages import CORE_COMMANDS, KNOWN_EXTENSIONS


class Teapot:
    """An extension as a stranger writes it."""

    @hookimpl
    def register_commands(self, commands: Registrations[CommandEntry]) -> None:
        commands.add(CommandEntry("tea", "Pour tea.", "teapot.cli:tea"))

    @hookimpl
    def on_home_opened(self, memory: Any) -> None:
        memory.tea = "poured"

    @hookimpl
    def examine(self, home: Path, config: Any) -> Iterator[Finding]:
        yield Finding("tea", "ok", str(home))


class Broken:
    """An extension whose hooks raise."""

    @hookimpl
    def register_commands(self, commands: Registrations[CommandEntry]) -> None:
        raise RuntimeError("no water")

    @hookimpl
    def on_home_opened(self, memory: Any) -> None:
        raise RuntimeError("no water")

    @hookimpl
    def examine(self, home: Path, config: Any) -> Iterator[Finding]:
        yield Finding("kettle", "ok")
        raise RuntimeError("no water")


class Shelf:
    """An extension with parts, of which two have names that they can't have."""

    @hookimpl
    def home_parts(self) -> Iterator[HomePart]:
        yield HomePart("cups", "cup", ("cups",), "teapot:Cups")
        yield HomePart("notes", "pot", ("pots",), "teapot:Pots")
        yield HomePart("spoons", "file", ("spoons",), "teapot:Spoons")

    @hookimpl
    def examine(self, home: Path, trial: bool) -> Iterator[Finding]:
        yield Finding(home.name, "note", f"{trial}")
        raise RuntimeError("no more cups")


class Misspelt:
    @hookimpl
    def register_comands(self, commands: Registrations[CommandEntry]) -> None: ...


@pytest.fixture
def teapot(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with these extensions, which entry points can name."""
    module = types.ModuleType("teapot")
    for extension in (Teapot, Broken, Shelf, Misspelt):
        setattr(module, extension.__name__, extension)
    monkeypatch.setitem(sys.modules, "teapot", module)
    return "teapot"


def points(**values: str) -> list[importlib_metadata.EntryPoint]:
    return [importlib_metadata.EntryPoint(name, value, EXTENSION_GROUP) for name, value in values.items()]


def load(config: str = "", **values: str) -> Extensions:
    return load_extensions(parse_config(config), points(**values))


def states(extensions: Extensions) -> dict[str, str]:
    return {one.name: one.state for one in extensions.found}


def test_an_extension_registers_commands_and_says_which_hooks_it_has(teapot: str) -> None:
    extensions = load(tea="teapot:Teapot")
    assert extensions.commands == {"tea": CommandEntry("tea", "Pour tea.", "teapot.cli:tea", "tea")}
    assert [one.adds for one in extensions.found] == [("register_commands", "examine", "on_home_opened")]
    assert extensions.problems() == []


def test_one_that_raises_is_a_problem_and_stops_no_other(teapot: str) -> None:
    extensions = load(a="teapot:Broken", b="teapot:Teapot")
    assert list(extensions.commands) == ["tea"]
    assert extensions.problems() == ["the extension 'a' raised in register_commands: RuntimeError: no water"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("teapot:Misspelt", "register_comands() is no hook of an extension"),
        ("sys", "it has no function that is marked @hookimpl"),
    ],
)
def test_one_that_can_not_be_loaded_has_a_state_and_a_reason(teapot: str, value: str, reason: str) -> None:
    extensions = load(bad=value, good="teapot:Teapot")
    assert states(extensions) == {"bad": "failed", "good": "active"}
    assert extensions.found[0].reason == reason
    (problem,) = extensions.problems()
    assert "'bad' is not active" in problem
    assert extensions.found[0].remedy in problem


def test_a_misspelt_hook_is_told_what_is_meant(teapot: str) -> None:
    assert load(bad="teapot:Misspelt").found[0].remedy == "did you mean register_commands()?"


def test_the_config_allows_blocks_and_orders_them(teapot: str) -> None:
    both = {"a": "teapot:Teapot", "b": "teapot:Teapot"}
    assert states(load("extensions: {block: [a]}", **both)) == {"a": "blocked", "b": "active"}
    assert states(load("extensions: {allow: [a]}", **both)) == {"a": "active", "b": "blocked"}
    assert list(states(load("extensions: {order: [b]}", **both))) == ["b", "a"]


def test_a_blocked_one_is_not_imported() -> None:
    extensions = load("extensions: {block: [bad]}", bad="no_such_module")
    assert states(extensions) == {"bad": "blocked"}
    assert extensions.problems() == []


def test_the_first_of_two_with_one_command_has_it(teapot: str) -> None:
    extensions = load(a="teapot:Teapot", b="teapot:Teapot")
    assert extensions.problems() == ["the extension 'b' offers 'tea', which 'a' has already"]
    assert extensions.commands["tea"].extension == "a"


class Usurper:
    """An extension with commands of this program."""

    @hookimpl
    def register_commands(self, commands: Registrations[CommandEntry]) -> None:
        commands.add(CommandEntry("doctor", "Cure all.", "teapot.cli:tea"))
        commands.add(CommandEntry("memory add", "Add sugar.", "teapot.cli:tea"))


def test_a_command_of_this_program_is_left_out_and_is_a_problem(
    teapot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[teapot], "Usurper", Usurper, raising=False)
    extensions = load(u="teapot:Usurper")
    assert extensions.problems() == [
        f"the extension 'u' offers the command {name!r}, which is left out: it is one of this program"
        for name in ("doctor", "memory add")
    ]
    assert extensions.commands == {}


def test_a_name_in_the_config_that_is_of_no_extension_is_a_problem(teapot: str) -> None:
    config = "extensions: {allow: [tea, semantic, hermes-memory-ui], block: [semantc], order: [tee]}"
    assert load(config, tea="teapot:Teapot").problems() == [
        "extensions.block names 'semantc', and no extension has that name; did you mean 'semantic'?",
        "extensions.order names 'tee', and no extension has that name; did you mean 'tea'?",
    ]
    (problem,) = load("extensions: {block: [qqq]}").problems()
    assert problem.endswith("no extension has that name; see 'hermes-memory extensions'")


def entry_module(folder: Path, name: str, *lines: str) -> importlib_metadata.EntryPoint:
    """Write an entry module that says when it is imported, and return its entry point."""
    text = ["import sys", "from hermes_core import hookimpl", f"sys.{name}_imported = True", *lines]
    (folder / f"{name}.py").write_text("\n".join(text))
    return importlib_metadata.EntryPoint(name, name, EXTENSION_GROUP)


OPENED = ("@hookimpl", "def on_home_opened(memory): sys.home_was_opened = memory.home.path")


def test_extensions_are_imported_when_a_hook_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    extensions = load_extensions(parse_config(""), [entry_module(tmp_path, "entry_a", *OPENED)])
    assert not hasattr(sys, "entry_a_imported")
    monkeypatch.setattr(sys, "home_was_opened", None, raising=False)
    extensions.notify("on_home_opened", memory=types.SimpleNamespace(home=HermesHome(tmp_path)))
    assert sys.home_was_opened == tmp_path  # type: ignore[attr-defined]
    assert states(extensions) == {"entry_a": "active"}


def test_an_import_that_hangs_is_left_behind_and_stops_no_other(
    teapot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("hermes_core.loader.extensions.IMPORT_TIMEOUT_S", 0.2)
    release = threading.Event()
    monkeypatch.setattr(sys, "entry_hangs", release, raising=False)
    hanging = entry_module(tmp_path, "entry_hanging", "sys.entry_hangs.wait(60)", *OPENED)
    try:
        extensions = load_extensions(parse_config(""), [hanging, *points(tea="teapot:Teapot")])
        assert list(extensions.call("on_home_opened", memory=types.SimpleNamespace())) == []
        assert list(extensions.commands) == ["tea"]
        assert states(extensions) == {"entry_hanging": "failed", "tea": "active"}
        assert "importing it has not ended after 0 s and is left behind" in extensions.problems()[0]
        assert "extensions.block" in extensions.problems()[0]
        again = load_extensions(parse_config(""), [hanging])  # at once, and on no second thread
        assert "is left behind" in again.problems()[0]
    finally:
        release.set()
    for thread in threading.enumerate():
        if thread.name == "hermes-load-extension entry_hanging":
            thread.join(5)
    assert states(load_extensions(parse_config(""), [hanging])) == {"entry_hanging": "active"}


def test_the_table_of_commands_has_those_of_the_program() -> None:
    ctx = click.Context(main)
    commands = {name: main.get_command(ctx, name) for name in main.lazy}
    below = {
        f"{name} {word}"
        for name, group in commands.items()
        if isinstance(group, Group)
        for word in {*group.commands, *group.lazy}
    }
    assert {*commands, *below} == CORE_COMMANDS


def test_an_open_memory_calls_them_and_reports_those_that_raise(
    teapot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = points(a="teapot:Broken", b="teapot:Teapot")
    monkeypatch.setattr("hermes_core.memory.installed_entry_points", lambda: iter(found))
    with open_memory(tmp_path) as memory:
        assert memory.tea == "poured"  # type: ignore[attr-defined]
        opened, registered = memory.problems()
        assert opened == "the extension 'a' raised in on_home_opened: RuntimeError: no water"
        assert registered == "the extension 'a' raised in register_commands: RuntimeError: no water"


def test_doctor_has_what_they_find_and_names_one_that_raises(
    teapot: str, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = points(a="teapot:Broken", b="teapot:Teapot")
    monkeypatch.setattr("hermes_core.loader.extensions.installed_entry_points", lambda: iter(found))
    tea, broken, _ = examine_extensions(hermes_home)
    assert (broken.what, broken.state) == ("extensions", "failed")
    assert broken.detail == "the extension 'a' raised in examine: RuntimeError: no water"
    assert (tea.what, tea.detail) == ("tea", str(hermes_home.path))


def test_ours_that_are_not_installed_are_known_with_the_way_to_install_them() -> None:
    missing = {one.name: one for one in missing_extensions(Extensions())}
    assert missing.keys() == KNOWN_EXTENSIONS.keys()
    for name, one in missing.items():
        assert one.state == "missing"
        assert f"plugins/{name}" in one.remedy
        assert extension_remedy(Extensions(), name) == one.remedy


def test_one_of_another_release_than_the_core_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_core.loader.extensions.program_version", lambda: "0.2.0")
    installed = [p for p in importlib_metadata.entry_points(group=EXTENSION_GROUP) if p.name == "ui"]
    (extension,) = load_extensions(parse_config(""), installed).found
    assert extension.state == "failed"
    assert extension.reason == "version 0.1.0 is for hermes-memory-core 0.1, and this is 0.2.0"


def test_each_of_ours_registers_without_a_package_of_somebody_else() -> None:
    """Loads no third-party package: that is what costs time, and can be asserted on a busy machine."""
    names = [point.value for point in importlib_metadata.entry_points(group=EXTENSION_GROUP)]
    assert len(names) >= 3
    import subprocess

    for name in names:
        code = (
            "import sys, hermes_core, hermes_core.contract.extensions; from hermes_core import hookimpl; "
            f"before = set(sys.modules); import {name}; "
            "print(sorted({m.partition('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == f"[{name.partition('.')[0]!r}]\n"


def test_a_part_has_the_name_of_its_extension_and_no_name_of_another_thing(teapot: str) -> None:
    extensions = load(shelf=f"{teapot}:Shelf")
    assert [(part.name, part.extension) for part in extensions.parts.values()] == [("cups", "shelf")]
    (problem,) = extensions.problems()
    assert "has a part that is left out: its noun 'file' is taken" in problem


def test_findings_of_an_extension_that_raises_are_left_out_and_it_is_a_problem(
    teapot: str, tmp_path: Path
) -> None:
    extensions = load(shelf=f"{teapot}:Shelf")
    assert extensions.findings(Finding, tmp_path, parse_config(""), trial=True) == []
    assert extensions.problems() == ["the extension 'shelf' raised in examine: RuntimeError: no more cups"]


class Careless:
    """An extension whose answers have wrong types, and parts that lie outside of the home."""

    @hookimpl
    def register_commands(self, commands: Registrations[Any]) -> Any:
        commands.add(CommandEntry("pour", "Pour tea.", "teapot.cli:pour"))
        commands.add(CommandEntry("cold tea pot", "Three words.", "teapot.cli:pour"))
        commands.add(CommandEntry("cup", None, "teapot.cli:cup"))  # type: ignore[arg-type]
        commands.add(CommandEntry(5, "A number.", "teapot.cli:pour"))  # type: ignore[arg-type]
        commands.add(types.SimpleNamespace(name="spoon"))
        return 5

    @hookimpl
    def home_parts(self) -> Iterator[Any]:
        yield HomePart("cups", "cup", ("cups",), "teapot:Cups")
        yield None
        yield HomePart("pots", "pot", 5, "teapot:Pots")  # type: ignore[arg-type]
        yield from (
            HomePart("pots", "pot", (pattern,), "teapot:Pots") for pattern in ("", "/etc", "../*", "a/..")
        )
        yield HomePart("pots", "pot", ("pots",), "teapot:Pots", lock="../state.db")

    @hookimpl
    def examine(self) -> list[Any]:
        return [Finding("tea", "ok"), None]


@pytest.fixture
def careless(teapot: str, monkeypatch: pytest.MonkeyPatch) -> Extensions:
    monkeypatch.setattr(sys.modules[teapot], "Careless", Careless, raising=False)
    return load(careless=f"{teapot}:Careless")


def test_a_command_that_can_not_be_used_is_left_out_and_is_a_problem(careless: Extensions) -> None:
    assert list(careless.commands) == ["pour"]
    reasons = " ".join(careless.problems())
    assert "'cold tea pot' is not one word" in reasons
    assert "summary of 'cup' must be a str, got None" in reasons
    assert "name of 5 must be a str" in reasons
    assert "namespace(name='spoon') is no CommandEntry" in reasons


def test_a_part_outside_of_the_home_is_left_out(careless: Extensions) -> None:
    assert list(careless.parts) == ["cups"]


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        (None, "None is no HomePart"),
        (HomePart("pots", "pot", "pots", "t:P"), "patterns of 'pots' must be a tuple"),  # type: ignore[arg-type]
        (HomePart("pots", "pot", ("",), "t:P"), "its pattern '' is not of a folder below the home"),
        (HomePart("pots", "pot", ("/etc",), "t:P"), "its pattern '/etc' is not"),
        (HomePart("pots", "pot", ("a/../../*",), "t:P"), "its pattern 'a/../../*' is not"),
        (
            HomePart("pots", "pot", ("pots",), "t:P", lock="../state.db"),
            "its lock '../state.db' is not",
        ),
    ],
)
def test_a_part_that_can_not_be_used_has_a_reason(part: Any, fault: str) -> None:
    assert fault in part_fault(part)


def test_a_finding_of_another_type_is_left_out_and_is_a_problem(careless: Extensions, tmp_path: Path) -> None:
    assert careless.findings(Finding, tmp_path, parse_config(""), trial=False) == [Finding("tea", "ok")]
    assert careless.met_problems == ["the extension 'careless' found a NoneType, which is no Finding"]


@pytest.mark.parametrize("target", ["", "teapot", "teapot:Nothing", "no_such_module:x", "teapot:x:y", None])
def test_a_target_that_can_not_be_had_is_an_import_error(teapot: str, target: Any) -> None:
    with pytest.raises(ImportError):
        import_target(target)


def test_a_target_whose_module_raises_is_an_import_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_that_exits.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="SystemExit: 0"):
        import_target("module_that_exits:x")


def distributed(
    folder: Path, distribution: str, name: str, version: str = "Version: 0.1.0\n"
) -> list[importlib_metadata.EntryPoint]:
    """Return the entry points of a distribution that is made in the folder."""
    info = folder / f"{distribution.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\n{version}")
    (info / "entry_points.txt").write_text(f"[{EXTENSION_GROUP}]\n{name} = teapot:Teapot\n")
    return list(importlib_metadata.PathDistribution(info).entry_points)


def test_the_second_of_two_extensions_with_one_name_is_a_problem(teapot: str, tmp_path: Path) -> None:
    both = [*distributed(tmp_path, "tea-one", "tea"), *distributed(tmp_path, "tea-two", "tea")]
    extensions = load_extensions(parse_config(""), both)
    assert [(one.distribution, one.state) for one in extensions.found] == [
        ("tea-one", "active"),
        ("tea-two", "failed"),
    ]
    assert "its name is the one of an extension of tea-one; uninstall tea-two" in extensions.problems()[0]
    blocked = load_extensions(parse_config("extensions: {block: [tea-one]}"), both)
    assert [one.state for one in blocked.found] == ["blocked", "active"]


def test_a_name_of_this_project_is_reserved(teapot: str, tmp_path: Path) -> None:
    (one,) = load_extensions(parse_config(""), distributed(tmp_path, "tea", "archive")).found
    assert one.state == "failed"
    assert "hermes-memory-archive" in one.reason


class Guesser:
    """An extension with an index and a tracer that can't be used, and a hook with another parameter."""

    @hookimpl
    def register_indexes(self, indexes: Registrations[IndexEntry]) -> None:
        indexes.add(IndexEntry("guesses", "teapot:make_index"))

    @hookimpl
    def make_tracer(self, config: Any) -> str:
        return "tracer"


class Renamed:
    @hookimpl
    def register_commands(self, comands: Any) -> None: ...


def _raise(*_: object) -> None:
    raise RuntimeError("no water")


@pytest.mark.parametrize("make_index", [_raise, lambda *_: 5, None])
def test_a_memory_opens_though_an_index_and_a_tracer_can_not_be_used(
    teapot: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_index: object
) -> None:
    module = sys.modules[teapot]
    monkeypatch.setattr(module, "Guesser", Guesser, raising=False)
    if make_index is not None:
        monkeypatch.setattr(module, "make_index", make_index, raising=False)
    home = HermesHome(tmp_path / "home")
    home.path.mkdir()
    home.config_yaml.write_text("telemetry: {enabled: true}\n")
    monkeypatch.delenv("HERMES_SEMANTIC", raising=False)
    monkeypatch.setattr("hermes_core.memory.installed_entry_points", lambda: iter(points(g="teapot:Guesser")))
    with open_memory(home) as memory:
        problems = " ".join(memory.problems())
        assert "the extension 'g' can't make its index" in memory.sessions.past.vector_problem
    assert "telemetry is on, and no extension makes it" in problems


def test_a_hook_with_another_parameter_has_the_reason(teapot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[teapot], "Renamed", Renamed, raising=False)
    (one,) = load(r="teapot:Renamed").found
    assert "'comands'" in one.reason
    assert one.remedy == "correct the parameters of the hook"


def test_metadata_without_a_version_stops_nothing(teapot: str, tmp_path: Path) -> None:
    both = [
        *distributed(tmp_path, "tea", "tea", ""),
        *distributed(tmp_path, "hermes-memory-archive", "archive", ""),
    ]
    found = {one.name: one for one in load_extensions(parse_config(""), both).found}
    assert (found["tea"].state, found["tea"].version) == ("active", "")
    assert found["archive"].reason == "its metadata has no version"
