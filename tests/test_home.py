from __future__ import annotations

import os
from pathlib import Path

import pytest

from hermes_core import MemoryManager, MemoryProvider
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome, folder_fault


def test_an_argument_comes_before_the_environment_and_that_before_the_default(tmp_path: Path) -> None:
    env = {"HERMES_HOME": str(tmp_path / "env"), "LOCALAPPDATA": str(tmp_path)}
    assert HermesHome.resolve(tmp_path / "given", environ=env).path == tmp_path / "given"
    assert HermesHome.resolve(environ=env).path == tmp_path / "env"
    default = tmp_path / "hermes" if os.name == "nt" else Path("~/.hermes").expanduser()
    assert HermesHome.resolve(environ={"LOCALAPPDATA": str(tmp_path)}).path == default


def test_a_home_is_absolute_and_may_begin_with_a_tilde(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert HermesHome.resolve("here", environ={}).path == tmp_path / "here"
    assert HermesHome.resolve("~/x", environ={}).path == Path("~/x").expanduser()


def test_a_home_whose_name_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no UTF-8"):
        HermesHome.resolve("/tmp/h\udcff")


def test_a_home_of_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match="is unknown here"):
        HermesHome.resolve("~nobody-has-this-name/x", environ={})


@pytest.mark.parametrize("path", ["$HOME/x", "${HOME}/x", "%USERPROFILE%\\x"])
def test_a_home_that_begins_with_a_variable_that_nobody_filled_in_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="no variable is filled in here; write the whole path"):
        HermesHome.resolve(environ={"HERMES_HOME": path})


def test_a_folder_may_still_be_called_like_a_variable(tmp_path: Path) -> None:
    assert HermesHome.resolve(tmp_path / "$x").path == tmp_path / "$x"


@pytest.mark.parametrize("name", ["", "default"])
def test_the_default_profile_is_the_home_itself(tmp_path: Path, name: str) -> None:
    home = HermesHome.resolve(tmp_path, name, environ={"HERMES_PROFILE": "work"})
    assert (home.path, home.profile) == (tmp_path, "default")


def test_a_profile_is_a_whole_home_of_its_own(tmp_path: Path) -> None:
    by_name = HermesHome.resolve(tmp_path, "work", environ={})
    by_environment = HermesHome.resolve(tmp_path, environ={"HERMES_PROFILE": "work"})
    assert by_name == by_environment
    assert (by_name.path, by_name.profile) == (tmp_path / "profiles" / "work", "work")
    assert by_name.memory_md.is_relative_to(by_name.path)


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "a\\b", ".hidden", "-x", "a b", "a\n", "x" * 65, "ü"])
def test_a_profile_can_not_leave_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="can't be a profile's name"):
        HermesHome.resolve(tmp_path, name, environ={})


@pytest.mark.parametrize("name", ["con", "NUL", "com1", "Lpt9.d", "aux.", "work.", "conout$"])
def test_a_profile_has_a_name_that_is_a_folder_on_each_system(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="can't be a profile's name"):
        HermesHome.resolve(tmp_path, name, environ={})


@pytest.mark.parametrize("name", ["console", "com10", "aux-1", "work.d", "null"])
def test_a_name_that_only_begins_like_a_device_is_a_folder(name: str) -> None:
    assert folder_fault(name) == ""


def test_a_profile_has_the_spelling_of_its_folder_if_the_file_system_ignores_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two spellings of one folder were two identities for a provider."""
    HermesHome.resolve(tmp_path, "Work", environ={}).path.mkdir(parents=True)
    assert HermesHome.resolve(tmp_path, "work", environ={}).profile == "work"  # two folders here
    monkeypatch.setattr(Path, "is_dir", lambda path: True)
    monkeypatch.setattr(Path, "samefile", lambda path, other: path.name.lower() == other.name.lower())
    for spelling in ("work", "WORK", "Work"):
        assert HermesHome.resolve(tmp_path, spelling, environ={}).path == tmp_path / "profiles" / "Work"
    (tmp_path / "profiles" / "work").mkdir()
    assert HermesHome.resolve(tmp_path, "work", environ={}).profile == "work"


def test_every_path_lies_under_the_home_and_none_is_made(tmp_path: Path) -> None:
    home = HermesHome(tmp_path / "home")
    names = [name for name, value in vars(HermesHome).items() if isinstance(value, property)]
    paths = [getattr(home, name) for name in names] + [home.provider_json("mem0")]
    assert len(set(paths)) == len(paths) >= 12
    assert all(path.is_relative_to(home.path) for path in paths)
    assert not home.path.exists()


def test_a_hook_without_a_session_finds_the_home_that_asks(hermes_home: HermesHome, tmp_path: Path) -> None:
    seen = []

    class Asked(MemoryProvider):
        name = "asked"

        def is_available(self) -> bool:
            seen.append(HermesHome.resolve().path)
            return True

        def backup_paths(self) -> list[str]:
            return [str(HermesHome.resolve().path)]

    manager = MemoryManager(HermesHome(tmp_path / "another"))
    manager.add_provider(Asked)
    assert seen == [tmp_path / "another"]
    assert manager.ask("asked", "backup_paths").value == (str(tmp_path / "another"),)
    manager.shutdown_all()
    assert HermesHome.resolve() == hermes_home
