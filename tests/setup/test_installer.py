"""Our own packages come from a wheel, a checkout or a configured index; no command gives their names to a public one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hermes_core import packages
from hermes_core.cli import main
from hermes_core.config import set_value
from hermes_core.errors import SetupFailed
from hermes_core.home import HermesHome
from hermes_core.loader.discover import BUNDLED
from hermes_core.setup.installer import InstallStep, install_steps

ROOT = Path(__file__).resolve().parents[2]
NAME = "hermes-memory-absent"
posix = pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands in for the installer")


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider of ours that is installed nowhere, and a program that was installed from nowhere."""
    monkeypatch.setitem(BUNDLED, "absent", NAME)
    monkeypatch.setattr(packages, "_origin", lambda: iter(()))


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file into which an installer writes its arguments, one call a line."""
    log, uv = tmp_path / "calls", tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\necho "$@" "index=$UV_EXTRA_INDEX_URL" >> {log}\nexit 1\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}:/bin:/usr/bin")
    return log


def wheel(folder: Path, version: str = "0.1.0") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"hermes_memory_absent-{version}-py3-none-any.whl"
    path.write_bytes(b"")
    return path


def run(*words: str, answer: str = "") -> Result:
    return CliRunner().invoke(main, list(words), input=answer)


@posix
def test_an_installer_that_writes_another_encoding_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "installer"
    program.write_bytes(b"#!/bin/sh\nprintf 'kein Platz auf dem Ger\\344t' >&2\nexit 1\n")
    program.chmod(0o755)

    monkeypatch.setattr("hermes_core.setup.installer.install_command", lambda *_: [str(program)])
    with pytest.raises(SetupFailed, match="kein Platz auf dem Ger\ufffdt"):
        InstallStep(("absent",), ("absent",), "").run()


def test_every_bundled_provider_is_a_package_of_ours() -> None:
    assert set(BUNDLED.values()) <= packages.OWN_PACKAGES


def test_the_adapters_are_packages_of_ours_too() -> None:
    adapters = {f"hermes-memory-{path.parent.name}" for path in ROOT.glob("integrations/*/pyproject.toml")}
    assert adapters <= packages.OWN_PACKAGES
    for name in adapters:
        assert packages.find_package(name) == ROOT / "integrations" / name.removeprefix("hermes-memory-")


@pytest.mark.usefixtures("absent")
def test_the_newest_wheel_of_a_configured_folder_is_taken(hermes_home: HermesHome, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "0.9.0")
    newest = wheel(tmp_path / "wheels", "0.10.0")
    set_value(hermes_home, "packages.find_links", [str(tmp_path / "wheels")])
    own, others = install_steps(hermes_home, ["some-sdk>=2", NAME])
    assert own.words == ("--no-deps", str(newest))
    assert str(newest) in own.origin
    assert others.words == ("some-sdk>=2",)


def test_a_checkout_has_the_sources_of_all_packages(hermes_home: HermesHome) -> None:
    (step,) = install_steps(hermes_home, ["hermes-memory-honcho"])
    assert step.words == ("--no-deps", str(ROOT / "plugins/honcho"))
    assert {packages.find_package(name) for name in packages.OWN_PACKAGES} >= {
        ROOT,
        ROOT / "plugins/testing",
    }


@pytest.mark.usefixtures("absent")
def test_without_a_place_the_remedy_names_the_key_and_no_installer_runs(
    hermes_home: HermesHome, commands: Path
) -> None:
    with pytest.raises(SetupFailed, match=r"on no public package index.*packages\.find_links"):
        install_steps(hermes_home, [NAME])
    for words in (
        ("memory", "setup", "absent", "--yes"),
        ("providers", "install", "absent"),
        ("providers", "install", NAME),
        ("providers", "install", "-U", "Hermes_Memory.Absent"),
    ):
        result = run(*words)
        assert result.exit_code == 1
        assert "packages.find_links" in result.stderr
    assert not commands.exists()


@posix
@pytest.mark.usefixtures("absent")
def test_a_configured_index_is_the_only_one_that_is_asked(
    hermes_home: HermesHome, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_EXTRA_INDEX_URL", "https://pypi.org/simple")
    set_value(hermes_home, "packages.index", "https://packages.example/simple")
    assert run("memory", "setup", "absent", "--yes").exit_code == 1
    (call,) = commands.read_text().splitlines()
    assert "--no-deps --index-url https://packages.example/simple hermes-memory-absent" in call
    assert call.endswith("index=")


@posix
@pytest.mark.usefixtures("absent")
def test_what_is_installed_is_shown_with_its_place_and_needs_consent(
    hermes_home: HermesHome, commands: Path, tmp_path: Path
) -> None:
    path = wheel(tmp_path / "wheels")
    set_value(hermes_home, "packages.find_links", [str(path.parent)])
    result = run("memory", "setup", "absent", answer="n\n")
    assert result.exit_code == 1
    assert f"{NAME} comes from the wheel {str(path)!r}" in result.output
    assert not commands.exists()
    run("memory", "setup", "absent", answer="y\n")
    assert f"--no-deps {path}" in commands.read_text()


@posix
@pytest.mark.usefixtures("commands")
def test_packages_of_others_are_shown_and_need_consent(hermes_home: HermesHome, commands: Path) -> None:
    folder = hermes_home.path / "plugins/pond"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: pond\npip_dependencies: [pond-sdk-not-there]\n")
    (folder / "__init__.py").write_text(
        "from hermes_core import MemoryProvider\nclass Pond(MemoryProvider):\n    name = 'pond'\n"
    )
    result = run("memory", "setup", "pond", answer="n\n")
    assert "pond-sdk-not-there comes from your package index" in result.output
    assert not commands.exists()


NAMES = "|".join(sorted(packages.OWN_PACKAGES))
# A name behind a slash or before one is a path.
BARE_NAME = re.compile(rf"pip3? install[^`\n]*[\s\"'=](?:{NAMES})(?![\w/.-])")


def test_no_page_and_no_message_gives_pip_the_name_of_a_package_of_ours() -> None:
    files = [
        path
        for folder in ("hermes_core", "plugins", "docs", "cookiecutter-provider", "bench")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".toml", ".yml", ".yaml", ".txt") and "tests" not in path.parts
    ]
    files += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "RELEASING.md", "Makefile")]
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files
        for match in BARE_NAME.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert wrong == []
