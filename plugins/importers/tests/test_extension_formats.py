"""Formats that extensions register: the package of the how-to page, end to end, and importers that do wrong."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import importlib_metadata
import pytest

from hermes_core import HermesHome, hookimpl, open_memory
from hermes_core.config import Config
from hermes_core.contract.extensions import EXTENSION_GROUP, ImporterEntry
from hermes_core.errors import ImportFailed
from hermes_core.loader.extensions import Extensions, load_extensions
from hermes_memory_importers import (
    ImportedMessage,
    ImportedSession,
    ImportedTurn,
    is_known,
    read_file,
    stream_file,
)
from hermes_memory_importers.run import import_sessions
from tests.cli.conftest import data, hermes

__all__ = ["data", "hermes"]  # fixtures

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/write-an-importer.md"
LINE = {"session": "a", "role": "user", "content": "hi"}
DAY = {
    "app": "diary",
    "id": "d1",
    "title": "Momo",
    "lines": [
        {"by": "me", "text": "My cat is called Momo", "at": "2024-05-01T10:00:00Z"},
        {"by": "diary", "text": "Noted."},
    ],
}


@pytest.fixture
def diary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the page, as an installer leaves it."""
    site = tmp_path / "site"
    text = PAGE.read_text(encoding="utf-8")
    for name, code in re.findall(r'```python title="([^"]+)"\n(.*?)```', text, re.DOTALL):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(code)
    (entry,) = re.findall(r'```toml title="pyproject.toml"\n(.*?)```', text, re.DOTALL)
    group, value = re.search(r'\[project\.entry-points\."(.+)"\]\n(.+)\n', entry).groups()  # type: ignore[union-attr]
    info = site / "diary_import-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: diary-import\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{value.replace(chr(34), '')}\n")
    monkeypatch.syspath_prepend(site)
    for name in [name for name in sys.modules if name.startswith("diary_import")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("diary")
def test_the_package_of_the_page_is_used_as_those_of_this_project(
    hermes: Any, data: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "days"
    folder.mkdir()
    path = folder / "2024.diary"
    path.write_text(json.dumps([DAY, {**DAY, "id": "d2", "lines": 3}]))
    rows = {row["name"]: row for row in data("extensions")}
    assert (rows["diary"]["state"], rows["diary"]["adds"]) == ("active", ["register_importers"])
    assert "diary|" in "".join(hermes("import", "--help").stdout.split())
    done = hermes("import", path, code=3)
    assert done.stdout == "1 turn (2 messages) of 1 session imported\n"
    assert "1 x expected a list, found 3 (at day 2, lines)" in " ".join(done.stderr.split())
    assert data("import", "--format", "diary", path, code=3)["known"] == 1
    assert data("import", folder, code=3)["known"] == 1
    (session,) = data("sessions", "list")
    assert "diary-d1" in json.dumps(session)
    assert "My cat is called Momo" in hermes("sessions", "show", "diary-d1").stdout


@pytest.mark.usefixtures("diary")
def test_a_blocked_package_reads_nothing_and_its_format_is_unknown(
    hermes: Any, tmp_path: Path, hermes_home: Any
) -> None:
    hermes_home.path.mkdir(exist_ok=True)
    hermes_home.config_yaml.write_text("extensions: {block: [diary]}\n")
    path = tmp_path / "day.json"
    path.write_text(json.dumps(DAY))
    assert "no known format" in hermes("import", path, code=1).stderr
    assert "is not one of" in hermes("import", "--format", "diary", path, code=2).stderr


# ------------------------------------------------------------------------------------------------- importers at their worst


def read_any(path: Path, skips: Any) -> Any:
    raise ImportFailed("read by the odd one", "nothing to do")


def raises(path: Path, head: bytes, value: Any) -> int:
    raise KeyError("app")


def breaks_off(path: Path, skips: Any) -> Any:
    def turns() -> Any:
        yield ImportedTurn((ImportedMessage("user", "hi"),))
        raise KeyError("answer")

    yield ImportedSession("odd-1", "odd", "", None), turns()


def refuses(path: Path, head: bytes, value: Any) -> int:
    raise ImportFailed("it is an empty diary", "write something first")


def score_1(path: Path, head: bytes, value: Any) -> int:
    return 1


def score_9(path: Path, head: bytes, value: Any) -> int:
    return 9


class Odd:
    """An extension with one importer that scores by the function of this name."""

    def __init__(self, score: str, target: str = "odd:read_any") -> None:
        self.entry = ImporterEntry("odd", "odd files", target, f"odd:{score}")

    @hookimpl
    def register_importers(self, importers: Any) -> None:
        importers.add(self.entry)


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loads the extension with these arguments."""
    module = ModuleType("odd")
    for function in (read_any, raises, breaks_off, refuses, score_1, score_9):
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, "odd", module)

    def load(*arguments: str) -> Extensions:
        module.plugin = Odd(*arguments)  # type: ignore[attr-defined]
        return load_extensions(
            Config(), [importlib_metadata.EntryPoint("odd", "odd:plugin", EXTENSION_GROUP)]
        )

    return load


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps(LINE))
    return path


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    path = tmp_path / "unknown.json"
    path.write_text('{"a": 1}')
    return path


def test_the_most_specific_importer_reads_a_file(odd: Any, chat: Path, unknown: Path) -> None:
    assert [session.source for session in read_file(chat, "auto", odd("score_1"))] == ["jsonl"]
    for path, score in ((chat, "score_9"), (unknown, "score_1")):
        with pytest.raises(ImportFailed, match="read by the odd one"):
            read_file(path, "auto", odd(score))


def test_what_an_importer_raises_while_it_reads_is_one_clear_error(
    odd: Any, unknown: Path, hermes_home: HermesHome
) -> None:
    with pytest.raises(ImportFailed, match=r"unknown\.json': the importer 'odd' raised TypeError"):
        read_file(unknown, "odd", odd("score_1", "odd:raises"))
    with open_memory(hermes_home) as memory:
        with pytest.raises(ImportFailed, match="the importer 'odd' raised KeyError: 'answer'"):
            import_sessions(memory, stream_file(unknown, "odd", None, odd("score_1", "odd:breaks_off")))
        assert [m.content for m in memory.sessions.get_messages("odd-1")] == ["hi"]


def test_one_that_raises_stops_no_other_and_is_named_if_nobody_else_reads_the_file(
    odd: Any, chat: Path, unknown: Path
) -> None:
    assert read_file(chat, "auto", odd("raises"))[0].source == "jsonl"
    assert read_file(chat, "auto", odd("no_such_function"))[0].source == "jsonl"
    with pytest.raises(ImportFailed, match="the importer 'odd' raised KeyError: 'app'") as caught:
        read_file(unknown, "auto", odd("raises"))
    assert "author of 'odd'" in caught.value.remedy
    with pytest.raises(ImportFailed, match="the importer 'odd' raised"):
        is_known(unknown, odd("raises"))


def test_the_reason_of_an_importer_that_refuses_a_file_is_shown(odd: Any, chat: Path, unknown: Path) -> None:
    assert read_file(chat, "auto", odd("refuses"))[0].source == "jsonl"
    with pytest.raises(ImportFailed, match="it is an empty diary"):
        read_file(unknown, "auto", odd("refuses"))
    assert not is_known(unknown, odd("refuses"))


def test_a_reader_that_can_not_be_imported_is_one_line(odd: Any, unknown: Path) -> None:
    with pytest.raises(ImportFailed, match="the importer 'odd' can't be imported: ") as caught:
        read_file(unknown, "odd", odd("score_1", "no_such_module:read"))
    assert caught.value.remedy
