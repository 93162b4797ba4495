"""`hermes-memory install-alias`: the short name, and the commands that other programs' installers call by it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.cli import shell
from hermes_core.cli.shell import add_alias

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the launchers here are shell scripts")


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH; it holds a link to `hermes-memory`, as pipx makes one."""
    folder = tmp_path / "my bin"
    folder.mkdir()
    (folder / "hermes-memory").symlink_to(Path(sys.executable).with_name("hermes-memory"))
    monkeypatch.setenv("PATH", str(folder))
    return folder


def run_alias(folder: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([folder / "hermes", *words], capture_output=True, text=True, cwd=cwd, check=False)


def test_the_alias_stands_beside_the_program_and_runs_it(hermes: Any, bin_folder: Path) -> None:
    assert str(bin_folder / "hermes") in hermes("install-alias").stdout
    done = run_alias(bin_folder, "memory", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: hermes memory" in done.stdout


def test_a_folder_called_like_the_package_is_not_run_in_its_place(bin_folder: Path, tmp_path: Path) -> None:
    add_alias()
    (tmp_path / "hermes_core").mkdir()
    (tmp_path / "hermes_core" / "__init__.py").write_text("raise SystemExit('hijacked')")
    done = run_alias(bin_folder, "--version", cwd=tmp_path)
    assert done.stdout.startswith("hermes-memory, version ")


def test_installing_the_alias_twice_is_the_same_as_once(hermes: Any, bin_folder: Path) -> None:
    assert hermes("install-alias").stdout == hermes("install-alias").stdout


@pytest.mark.parametrize("place", ["first", "last"])
def test_another_program_of_that_name_on_path_is_left_alone(
    hermes: Any, bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "hermes").write_text("#!/bin/sh\necho Hermes Agent\n")
    (other / "hermes").chmod(0o755)
    folders = [other, bin_folder] if place == "first" else [bin_folder, other]
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    refused = hermes("install-alias", code=1)
    assert refused.stderr.splitlines() == [
        f"error: another program is called 'hermes': {str(other / 'hermes')!r}; "
        "use hermes-memory, or an alias of your shell"
    ]
    assert not (bin_folder / "hermes").exists()
    assert "no alias 'hermes' is installed" in hermes("install-alias", "--remove").stdout
    assert "Hermes Agent" in (other / "hermes").read_text()


def test_remove_deletes_only_our_launcher(hermes: Any, bin_folder: Path) -> None:
    path = add_alias()
    assert hermes("install-alias", "--remove").stdout == f"removed {path}\n"
    assert not path.exists()
    assert (bin_folder / "hermes-memory").exists()


def test_a_folder_that_can_not_be_written_is_one_line(hermes: Any, bin_folder: Path) -> None:
    (bin_folder / "hermes").mkdir()
    assert "could not be written" in hermes("install-alias", code=1).stderr


def test_installers_of_other_programs_configure_memory_through_the_alias(
    hermes_home: HermesHome, bin_folder: Path
) -> None:
    add_alias()
    assert run_alias(bin_folder, "config", "set", "memory.provider", "tea-notes").returncode == 0
    assert "provider: tea-notes" in hermes_home.config_yaml.read_text()
    refused = run_alias(bin_folder, "plugins", "install", "./nowhere")
    assert (refused.returncode, refused.stderr) == (
        1,
        "error: './nowhere' is not there; give the folder of a plugin, or an archive\n",
    )


@pytest.mark.parametrize(("answer", "added"), [("y", True), ("n", False)])
def test_setup_offers_the_alias_on_a_terminal(
    hermes: Any, bin_folder: Path, notes: Path, monkeypatch: pytest.MonkeyPatch, answer: str, added: bool
) -> None:
    monkeypatch.setattr(shell, "_on_terminal", lambda: True)
    shown = hermes("memory", "setup", "notes", typed=f"{answer}\n").stdout
    assert "Add the short command 'hermes'" in shown
    assert (bin_folder / "hermes").exists() is added


@pytest.mark.parametrize("words", [["--yes"], []])
def test_setup_without_a_terminal_or_with_yes_does_not_ask(
    hermes: Any, bin_folder: Path, notes: Path, words: list[str]
) -> None:
    assert "short command" not in hermes("memory", "setup", "notes", *words).stdout
    assert not (bin_folder / "hermes").exists()
