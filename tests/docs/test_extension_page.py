"""The extension of the how-to page, installed as a package: its command, its check, its listing, and what fails."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from tests.cli.conftest import data, hermes

__all__ = ["data", "hermes"]  # fixtures

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/write-an-extension.md"
NOTE = "Birthday on 1 May."


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the package of the page, as an installer leaves it."""
    folder = tmp_path / "site"
    text = PAGE.read_text(encoding="utf-8")
    files = dict(re.findall(r'```(?:python|toml) title="([^"]+)"\n(.*?)```', text, re.DOTALL))
    project = tomllib.loads(files.pop("pyproject.toml"))["project"]
    for name, code in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(code, encoding="utf-8")
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("".join(points))
    monkeypatch.syspath_prepend(folder)
    for module in [name for name in sys.modules if name.partition(".")[0] == "birthdays"]:
        monkeypatch.delitem(sys.modules, module)
    return folder


def row_of(data: Any, code: int = 0) -> dict[str, Any]:
    """Return the line of `hermes-memory extensions` about the extension."""
    return next(row for row in data("extensions", code=code) if row["name"] == "birthdays")


@pytest.mark.usefixtures("site")
def test_the_command_and_the_check_of_the_page_work(hermes: Any, data: Any) -> None:
    hermes("memory", "add", "--target", "user", "Lives in Oslo.")
    assert hermes("birthdays").stdout == ""
    assert "no birthday is in USER.md" in " ".join(hermes("doctor", code=None).stdout.split())
    hermes("memory", "add", "--target", "user", NOTE)
    assert hermes("birthdays").stdout == f"{NOTE}\n"
    told = " ".join(hermes("doctor", code=None).stdout.split())
    assert "a birthday is in USER.md" in told
    assert "no birthday" not in told
    assert "List the birthdays in the notes." in hermes("--help").stdout


@pytest.mark.usefixtures("site")
def test_the_list_says_what_the_page_shows(data: Any) -> None:
    row = row_of(data)
    shown = re.search(r"^birthdays +(\S+) +(.+?)  +(\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown
    assert shown.groups() == (row["version"], ", ".join(row["adds"]), row["state"])


@pytest.mark.usefixtures("site")
def test_a_blocked_extension_adds_nothing_and_is_not_imported(
    hermes: Any, data: Any, hermes_home: HermesHome
) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    hermes_home.path.mkdir(exist_ok=True)
    hermes_home.config_yaml.write_text(block)
    assert row_of(data)["state"] == "blocked"
    assert "No such command 'birthdays'" in hermes("birthdays", code=2).stderr
    assert "birthdays.extension" not in sys.modules


def test_an_extension_that_can_not_be_imported_is_named_and_stops_nothing(
    site: Path, hermes: Any, data: Any
) -> None:
    (site / "birthdays" / "extension.py").write_text("import no_such_module\n")
    row = row_of(data, code=3)
    assert row["state"] == "failed"
    assert "no_such_module" in row["reason"]
    hermes("memory", "add", NOTE, code=None)
    assert NOTE in hermes("memory", "show", code=None).stdout
    status = hermes("memory", "status", code=3)
    assert "the extension 'birthdays' is not active" in " ".join((status.stdout + status.stderr).split())


def test_a_check_that_raises_is_named_and_the_other_checks_go_on(site: Path, hermes: Any) -> None:
    (site / "birthdays" / "check.py").write_text("def examine_notes(home):\n    raise KeyError('day')\n")
    done = hermes("doctor", code=None)
    told = " ".join((done.stdout + done.stderr).split())
    assert "the extension 'birthdays' raised in examine: KeyError: 'day'" in told
    assert "no birthday" not in told
