"""A package from the template works from the first moment, whatever its name and its kind are."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from cookiecutter.exceptions import FailedHookException
from filelock import FileLock

from hermes_core.cli import COMMANDS
from hermes_core.contract.values import BUILTIN_NAME
from hermes_core.loader.discover import BUNDLED
from hermes_core.packages import KNOWN_EXTENSIONS
from plugins.testing.tests.conftest import UNUSED_PLUGINS
from plugins.testing.tests.template.conftest import KINDS, PROVIDER_KINDS, TEMPLATE, Made, hermes, run

COMMON = {".github/workflows/ci.yml", ".gitignore", "LICENSE", "README.md", "docs/box.md", "pyproject.toml"}
PROVIDER = {
    "examples/turn.py",
    "tests/conftest.py",
    "tests/test_contract.py",
    "tests/test_provider.py",
    *(
        f"hermes_box/{name}"
        for name in ("__init__.py", "cli.py", "client.py", "provider.py", "py.typed", "settings.py")
    ),
}
EXTENSION = {
    "examples/export.jsonl",
    "tests/test_extension.py",
    *(
        f"hermes_memory_box/{name}"
        for name in ("__init__.py", "command.py", "exports.py", "extension.py", "py.typed", "reader.py")
    ),
}
OF_A_KIND = {
    "local": PROVIDER,
    "http": PROVIDER | {"examples/stand_in.py"},
    "sdk": PROVIDER | {"hermes_box/example_sdk.py"},
    "extension": EXTENSION,
}
LICENSES = {
    "MIT": "MIT License",
    "Apache-2.0": "Apache License",
    "BSD-3-Clause": "BSD 3-Clause",
    "Proprietary": "All rights reserved",
}
SHORTEST, LONGEST = "a", "a-name-of-thirty-characters-00"


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# ------------------------------------------------------------------- what is made


@pytest.mark.parametrize("kind", KINDS)
def test_these_files_are_made_and_no_others(bake: Callable[..., Path], kind: str) -> None:
    assert files(bake(name="box", kind=kind)) == COMMON | OF_A_KIND[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [SHORTEST, LONGEST])
def test_the_code_is_tidy_however_long_the_name_is(bake: Callable[..., Path], name: str, kind: str) -> None:
    folder = bake(name=name, kind=kind)
    run([sys.executable, "-m", "ruff", "format", "--check", "--no-cache", "."], folder)
    run([sys.executable, "-m", "ruff", "check", "--no-cache", "."], folder)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_the_template_itself_is_left_in_a_file(bake: Callable[..., Path], kind: str) -> None:
    folder = bake(kind=kind)
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in files(folder)}
    assert [name for name, text in texts.items() if "cookiecutter" in text or "{%" in text] == []
    assert [name for name, text in texts.items() if text and not text.endswith("\n")] == []


@pytest.mark.parametrize("license_name", LICENSES)
def test_the_licence_is_the_one_that_was_asked_for(bake: Callable[..., Path], license_name: str) -> None:
    folder = bake(license=license_name)
    assert LICENSES[license_name] in (folder / "LICENSE").read_text(encoding="utf-8")
    assert license_name in (folder / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "example"),
    [
        *((kind, "python examples/turn.py") for kind in PROVIDER_KINDS),
        ("extension", "hermes-memory --home trial import examples/export.jsonl"),
    ],
)
def test_the_workflow_runs_what_the_readme_says(bake: Callable[..., Path], kind: str, example: str) -> None:
    folder = bake(kind=kind)
    workflow = yaml.safe_load((folder / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["test"]
    assert job["runs-on"] == "${{ matrix.os }}"
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert {"python -m pytest", example, "mypy", "ruff check ."} <= set(commands)
    assert f"\n{example}\n" in (folder / "README.md").read_text(encoding="utf-8")


def test_the_wheel_of_the_kit_carries_the_template(tmp_path: Path) -> None:
    run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        TEMPLATE.parent / "plugins/testing",
    )
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        packed = {
            name for name in wheel.namelist() if name.startswith("hermes_memory_testing/provider_template/")
        }
    wanted = {name for name in files(TEMPLATE) if "__pycache__" not in name}
    assert {name.removeprefix("hermes_memory_testing/provider_template/") for name in packed} == wanted


@pytest.mark.parametrize("kind", ["http", "extension"])
def test_copier_makes_the_same_files(bake: Callable[..., Path], tmp_path: Path, kind: str) -> None:
    copier = pytest.importorskip("copier")
    copier.run_copy(str(TEMPLATE), tmp_path, data={"name": "box", "kind": kind}, defaults=True, quiet=True)
    ours, theirs = bake(name="box", kind=kind), tmp_path / "hermes-memory-box"
    assert files(tmp_path) == {f"hermes-memory-box/{name}" for name in files(ours)}
    assert [name for name in files(ours) if (ours / name).read_bytes() != (theirs / name).read_bytes()] == []


# -------------------------------------------------------------------------- names


@pytest.fixture(scope="module")
def hook() -> dict[str, object]:
    """What the hook defines, with a good name filled in as cookiecutter does."""
    text = (TEMPLATE / "hooks/pre_gen_project.py").read_text(encoding="utf-8")
    scope: dict[str, object] = {}
    exec(compile(text.replace("{{ cookiecutter.name | string | tojson }}", "'good'"), "hook", "exec"), scope)
    return scope


def test_copier_refuses_each_name_that_the_hook_refuses(hook: dict[str, object], tmp_path: Path) -> None:
    copier = pytest.importorskip("copier")
    for name in (*hook["TAKEN"], "hermes-notes", "memory-notes", "My Notes", "a" * 31):  # type: ignore[misc]
        with pytest.raises(ValueError, match=r"is taken|leave the\s+prefix out|small letters"):
            copier.run_copy(str(TEMPLATE), tmp_path, data={"name": name}, defaults=True, quiet=True)
    assert files(tmp_path) == set()


@pytest.mark.parametrize("name", ["a", "notes", "my-notes", "notes2", "a-1-b", LONGEST])
def test_a_good_name_is_taken(hook: dict[str, object], name: str) -> None:
    assert hook["fault"](name) == ""  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("my_notes", "'my-notes'"),
        ("My Notes", "'my-notes'"),
        ("a--b", "'a-b'"),
        ("-a", "'a'"),
        ("9lives", "'lives'"),
        ("", "small letters"),
        ("猫", "small letters"),
        ("notes\n", "'notes'"),
        ("'\"; import os", "'import-os'"),
        (LONGEST + "x", "at most 30"),
        ("hermes-notes", "leave the prefix out"),
        ("builtin", "built-in memory"),
        ("core", "hermes_core"),
        ("true", "config.yaml"),
        ("con", "Windows"),
        ("com1", "Windows"),
    ],
)
def test_another_name_is_refused_with_what_to_write(hook: dict[str, object], name: str, hint: str) -> None:
    assert hint in hook["fault"](name)  # type: ignore[operator]


def test_every_name_that_means_something_else_is_refused(hook: dict[str, object]) -> None:
    # "hermes-agent" is refused for its prefix.
    taken = {BUILTIN_NAME, *BUNDLED, *COMMANDS, *KNOWN_EXTENSIONS} - {"hermes-agent"}
    assert taken <= set(hook["TAKEN"])  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "name",
    [
        "mem0",
        "my_notes",
        pytest.param(
            '"; raise SystemExit(0) #', marks=pytest.mark.posix_files("a name that Windows refuses")
        ),
    ],
)
def test_a_refused_name_makes_nothing(
    bake: Callable[..., Path], name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FailedHookException):
        bake(name=name)
    assert capfd.readouterr().err.startswith("error: ")


# --------------------------------------------------------------------- it works


def test_its_types_are_strict(made: Made, shared: Path) -> None:
    with FileLock(shared / "mypy.lock"):  # the first reads the types of the core, for the others too
        cache = f"--cache-dir={shared / 'mypy'}"
        made.run("python", "-m", "mypy", cache, "--python-executable", sys.executable)


def test_its_own_suite_passes_as_installed(made: Made) -> None:
    said = made.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *UNUSED_PLUGINS)
    assert " passed" in said
    assert "not run" not in said
    assert "to fix" not in said


def test_a_provider_is_used_in_a_turn(provider: Made) -> None:
    said = provider.run("python", "examples/turn.py")
    assert f"### {provider.name} memory\n- [" in said
    assert "The spare key is under the blue pot." in said


def test_the_command_line_finds_a_provider_and_uses_it(provider: Made, tmp_path: Path) -> None:
    def shell(*words: str) -> str:
        return hermes(provider, tmp_path, *words, **{f"{provider.kind.upper()}_NOTES_API_KEY": "example-key"})

    listed = {entry["name"]: entry for entry in json.loads(shell("providers", "--json"))}
    assert listed[provider.name]["state"] == "idle"
    shell("memory", "use", provider.name)
    assert json.loads(shell("memory", "status", "--json"))["provider"] == provider.name
    assert "search" in shell(provider.name, "--help")


def test_a_home_has_the_command_the_importer_and_the_check_of_an_extension(
    extension: Made, tmp_path: Path
) -> None:
    home, exports = tmp_path / "home", extension.folder / "examples"
    home.mkdir()
    (home / f"{extension.name}.json").write_text(json.dumps({"folder": str(exports)}), encoding="utf-8")
    listed = {entry["name"]: entry for entry in json.loads(hermes(extension, home, "extensions", "--json"))}
    assert listed[extension.name]["state"] == "active"
    assert "export.jsonl: The boathouse" in hermes(extension, home, extension.name)
    hermes(extension, home, "import", str(exports / "export.jsonl"))
    assert "boathouse key" in hermes(extension, home, "sessions", "search", "boathouse")
    findings = json.loads(hermes(extension, home, "doctor", "--json"))["findings"]
    [found] = [found for found in findings if found["what"] == extension.name]
    assert (found["state"], found["detail"]) == ("ok", f"exports in {exports}: 1")
