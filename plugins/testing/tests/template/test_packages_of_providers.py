"""`hermes-memory providers install` in an environment of its own: wheels and folders come and go, the active stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from hermes_core.cli import main, packages
from plugins.testing.tests.template.conftest import new_environment

CODE = "from hermes_core import MemoryProvider\n\n\nclass P(MemoryProvider):\n    name = {name!r}\n"
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_CACHE_DIR": "1"}


def wheel(folder: Path, name: str, version: str = "1.0", provider: str = "") -> Path:
    """A wheel as pip takes it; with `provider` it offers one of that name."""
    module = name.replace("-", "_")
    path = folder / f"{module}-{version}-py3-none-any.whl"
    info = f"{module}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}.py", CODE.format(name=provider))
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        if provider:
            points = f"[hermes_core.providers]\n{provider} = {module}:P\n"
            archive.writestr(f"{info}/entry_points.txt", points)
        archive.writestr(f"{info}/RECORD", "")
    return path


class Shell:
    """`hermes-memory` in an environment, for a home."""

    def __init__(self, environment: Path, home: Path) -> None:
        self.program = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
        self.home = home

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        start = [
            str(self.program),
            "-c",
            "from hermes_core.cli import main; main()",
            "--home",
            str(self.home),
        ]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
        return subprocess.run([*start, *words], env={**kept, **OFFLINE}, capture_output=True, text=True)

    def providers(self) -> set[str]:
        return {entry["name"] for entry in json.loads(self("plugins", "list", "--json").stdout)}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture
def shell(environment: Path, tmp_path: Path) -> Shell:
    (tmp_path / "home").mkdir()
    return Shell(environment, tmp_path / "home")


def test_a_package_comes_is_listed_and_goes(shell: Shell, tmp_path: Path) -> None:
    done = shell("providers", "install", str(wheel(tmp_path, "notes-memory", provider="notes")))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "notes 1.0 (notes-memory): idle")
    assert "Successfully installed" in done.stderr
    assert "notes" in shell.providers()
    gone = shell("providers", "uninstall", "notes", "--yes")
    assert gone.returncode == 0, gone.stderr
    assert "notes" not in shell.providers()


def test_what_is_there_already_is_told_again_and_a_newer_one_replaces_it(
    shell: Shell, tmp_path: Path
) -> None:
    for version in ("1.0", "1.0", "2.0"):
        path = wheel(tmp_path, "twice-memory", version, provider="twice")
        done = shell("providers", "install", "--json", str(path))
        assert done.returncode == 0, done.stderr
        assert [(one["name"], one["version"]) for one in json.loads(done.stdout)] == [("twice", version)]


def test_the_active_provider_stays_active_and_is_not_removed(shell: Shell, tmp_path: Path) -> None:
    shell("providers", "install", str(wheel(tmp_path, "mine-memory", provider="mine")))
    assert shell("memory", "use", "mine").returncode == 0
    assert (
        shell("providers", "install", str(wheel(tmp_path, "other-memory", provider="other"))).returncode == 0
    )
    assert "provider: mine" in (shell.home / "config.yaml").read_text()
    refused = shell("providers", "uninstall", "mine-memory", "--yes")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "hermes-memory memory off" in refused.stderr
    shell("memory", "off")
    assert shell("providers", "uninstall", "mine-memory", "--yes").returncode == 0


def test_a_package_without_a_provider_is_told_as_such(shell: Shell, tmp_path: Path) -> None:
    done = shell("providers", "install", str(wheel(tmp_path, "plain-package")))
    assert done.returncode == 1
    assert "no memory provider came with" in done.stderr


def test_install_warns_once_when_hermes_agent_takes_the_name_hermes(shell: Shell, tmp_path: Path) -> None:
    both = [str(wheel(tmp_path, "drake-memory", provider="drake")), str(wheel(tmp_path, "hermes-agent"))]
    told, again = shell("providers", "install", *both), shell("providers", "install", *both)
    assert "this program is hermes-memory" in told.stderr
    assert "hermes-memory" not in again.stderr


def test_what_can_not_be_installed_fails_with_the_installers_own_words(shell: Shell) -> None:
    done = shell("providers", "install", "no-such-package-anywhere")
    assert done.returncode == 1
    assert "No matching distribution" in done.stderr
    assert "pip did not install no-such-package-anywhere" in done.stderr


def test_a_path_that_is_not_there_is_not_asked_of_an_index(shell: Shell) -> None:
    done = shell("providers", "install", "./nowhere")
    assert (done.returncode, done.stderr) == (
        1,
        "error: './nowhere' is not there; give the folder of a package, or a wheel\n",
    )


def test_a_folder_of_the_home_is_not_a_package(shell: Shell) -> None:
    folder = shell.home / "plugins" / "loose"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(CODE.format(name="loose"))
    done = shell("providers", "uninstall", "loose", "--yes")
    assert done.returncode == 1
    assert str(folder) in done.stderr


def test_uninstall_removes_nothing_but_packages_of_providers(shell: Shell) -> None:
    assert "no installed provider" in shell("providers", "uninstall", "pip", "--yes").stderr


def test_a_short_name_of_ours_is_the_packages(tmp_path: Path) -> None:
    assert packages._requirement("holographic") == "hermes-memory-holographic"
    assert packages._requirement("some-package>=1.2") == "some-package>=1.2"


def test_an_environment_without_pip_and_uv_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)  # as where it is not installed
    monkeypatch.setenv("PATH", "")
    done = CliRunner().invoke(main, ["providers", "uninstall", "holographic", "--yes"])
    assert done.exit_code == 1
    assert "ensurepip" in done.output


def test_uv_serves_an_environment_without_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = tmp_path / "said"
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$@" > "{said}"\n')
    uv.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pip", None)  # as where it is not installed
    monkeypatch.setenv("PATH", str(tmp_path))
    assert packages.find_installer().run("install", "some-package")
    assert said.read_text().split() == ["pip", "install", "--python", sys.executable, "some-package"]
