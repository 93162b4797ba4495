"""Text that was stored can't drive the terminal: not through a table, a line, an error, a log or JSON."""

from __future__ import annotations

import errno
import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from hermes_core import HermesHome
from hermes_core.cli import Failure, _show_log, main, output
from hermes_core.config import set_value
from hermes_core.safety.terminal import printable

DRIVES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
NASTY = "cat \x1b]0;owned\x07 \x1b[31m red \x9b2J \x08\x08 \x7f \u202e turned \u2066\nerror: forged\r\nwarning: forged"
FORGED = re.compile("(?m)^(?:error|warning): forged")

PROVIDER = f"""
from hermes_core import MemoryProvider

class Notes(MemoryProvider):
    name = "notes"

    def prefetch(self, query):
        return {NASTY!r}

    def on_memory_write(self, write):
        raise RuntimeError({NASTY!r})

    def register_cli(self, group):
        raise RuntimeError({NASTY!r})
"""


@pytest.fixture
def nasty_home(hermes: Any, hermes_home: HermesHome, tmp_path: Path) -> None:
    """A home full of texts that would drive a terminal."""
    line = {"session": "s \x1b[31m", "title": NASTY, "speaker": NASTY, "ref": NASTY, "content": NASTY}
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(json.dumps(line | {"role": role}) for role in ("user", "assistant")))
    hermes("import", path)
    hermes("memory", "add", "Has a cat")
    hermes_home.memory_md.write_text(f"Has a cat\n§\n{NASTY}")
    folder = hermes_home.plugins / "notes"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PROVIDER)
    (folder / "plugin.yaml").write_text(json.dumps({"version": NASTY, "description": NASTY}))


COMMANDS = [
    ["sessions", "list"],
    ["sessions", "search", "cat"],
    ["sessions", "show", "jsonl"],
    ["memory", "show"],
    ["memory", "history"],
    ["memory", "status"],
    ["recall", "cat"],
    ["providers", "--all"],
    ["outbox", "list"],
    ["logs"],
    ["doctor"],
]


@pytest.mark.usefixtures("nasty_home")
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("provider", ["", "notes"])
def test_no_command_passes_it_on(
    hermes: Any, hermes_home: HermesHome, provider: str, as_json: list[str]
) -> None:
    set_value(hermes_home, "memory.provider", provider)
    shown = ""
    for words in COMMANDS:
        result = hermes("--debug", *words, *as_json, code=None)
        assert not DRIVES.search(result.stdout + result.stderr), words
        assert not FORGED.search(result.stderr), words
        shown += result.stdout
    assert "owned" in shown


@pytest.mark.usefixtures("nasty_home")
@pytest.mark.slow
def test_neither_errors_nor_warnings_pass_it_on(hermes: Any, hermes_home: HermesHome) -> None:
    set_value(hermes_home, "memory.provider", "notes")
    for words in (
        ["notes"],
        ["memory", "remove", "cat"],
        ["memory", "add", "Likes rye"],
        ["sessions", "show", NASTY],
        ["memory", "use", NASTY],
        ["--profile", NASTY, "memory", "show"],
    ):
        result = hermes(*words, code=None)
        assert not DRIVES.search(result.stdout + result.stderr), words
        assert not FORGED.search(result.stderr), words
        assert result.stdout + result.stderr


def test_no_line_of_an_error_a_warning_or_a_log_is_forged(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "it broke\nerror: forged\r\nwarning: forged\n"
    Failure(forged).show()
    output.warn([forged])
    with click.Context(main) as context:
        _show_log(context)
        logging.getLogger("hermes_core.some").warning("%s", forged)
    lines = capsys.readouterr().err.split("\n")
    assert [line for line in lines if line and not line.startswith(" ")] == [
        "error: it broke",
        "warning: it broke",
        "warning: hermes_core.some: it broke",
    ]


def test_a_heading_is_no_markup(hermes: Any, tmp_path: Path) -> None:
    home = tmp_path / "[red]mine[" / "home"
    home.mkdir(parents=True)
    assert "[red]mine[" in hermes("--home", home, "config", "list").stdout


@pytest.mark.posix_files("names with control characters")
def test_the_names_of_folders_do_not_drive_it(hermes: Any, hermes_home: HermesHome) -> None:
    folder = hermes_home.plugins / f"notes {NASTY.splitlines()[0].replace('/', '')}"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("broken = ")
    set_value(hermes_home, "memory.provider", folder.name)
    for words in (["doctor"], ["memory", "status"], ["providers", "--all"], ["memory", "setup", "--yes"]):
        result = hermes(*words, code=None)
        assert not DRIVES.search(result.stdout + result.stderr), words


def test_json_is_what_was_stored(hermes: Any, data: Any, tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"session": "s", "role": "user", "content": NASTY}))
    hermes("import", path)
    assert data("sessions", "show", "jsonl")[0]["content"] == NASTY


@pytest.mark.usefixtures("nasty_home")
@pytest.mark.parametrize("words", [["memory", "show"], ["sessions", "list"], ["memory", "status", "--json"]])
def test_a_program_started_without_standard_output_runs(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr("sys.stdout", None)
    assert main(words, standalone_mode=False) in (None, 0)


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_what_the_output_cannot_spell_is_replaced(
    hermes: Any, monkeypatch: pytest.MonkeyPatch, errors: str
) -> None:
    hermes("memory", "add", "Has a cat called 桃")
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="latin-1", errors=errors))
    main(["memory", "show"], standalone_mode=False)
    assert "cat called ?" in written.getvalue().decode("latin-1")


@pytest.mark.usefixtures("hermes")
@pytest.mark.parametrize("words", [["memory", "show"], ["memory", "--help"], ["--help"], ["--version"]])
def test_output_that_can_not_be_written_is_one_clear_line(
    hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    hermes_home.path.mkdir()

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stdout", Full())
    with pytest.raises(Failure, match="No space left on device; free disk space"):
        main(words, standalone_mode=False)


ROWS = [
    (
        "jsonl-s2-444008db5a4784d1",
        "jsonl",
        "",
        "My sister [bold]Anna[/bold] lives in Lisbon, and has for years",
    ),
    ("", "cli", 3, NASTY),
]
COLUMNS = ("session", "source", "messages", "about")


def printed(
    monkeypatch: pytest.MonkeyPatch, width: int, rows: list[Any], columns: tuple[str, ...] = COLUMNS
) -> list[str]:
    """The lines of a table on a terminal of this width, without colours."""
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, no_color=True, width=width, highlight=False)
    monkeypatch.setattr(output, "for_terminal", lambda: True)
    monkeypatch.setattr(output, "console", lambda: terminal)
    output.print_table("", columns, rows, "No session.")
    assert not DRIVES.search(re.sub("\x1b\\[[0-9]*m", "", shown.getvalue()).replace("\n", ""))
    return re.sub("\x1b\\[[0-9]*m", "", shown.getvalue()).splitlines()


def test_a_narrow_terminal_is_shown_records_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, 40, ROWS)
    assert all(len(line) <= 40 for line in lines)
    assert [line.rstrip() for line in lines][:5] == [
        "jsonl-s2-444008db5a4784d1",
        "  source: jsonl",
        "  about: My sister [bold]Anna[/bold]",
        "    lives in Lisbon, and has for years",
        "  source: cli",
    ]


PROVIDERS = [
    ("byterover", "idle", "0.1.0", "Markdown files in your home that the program brv curates", "installed"),
    ("holographic", "idle", "0.1.0", "facts with trust in a local file; observations and reflection", "here"),
    ("mem0", "idle", "0.1.0", "in the cloud, https://docs.mem0.example/a/path/that/has/no/end", "elsewhere"),
]


@pytest.mark.parametrize("width", range(40, 140, 5))
@pytest.mark.parametrize("rows", [ROWS, PROVIDERS], ids=["sessions", "providers"])
def test_no_word_of_a_table_is_broken(monkeypatch: pytest.MonkeyPatch, width: int, rows: list[Any]) -> None:
    lines = printed(monkeypatch, width, rows, (*COLUMNS, "installed")[: len(rows[0])])
    assert all(cell_len(line.rstrip()) <= width for line in lines)
    words = [word for row in rows for cell in row for word in printable(str(cell)).split()]
    assert {word for word in words if len(word) <= 20} <= set(" ".join(lines).split())


def test_a_table_gives_room_to_the_column_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a", "identity.owners", "short", "A sentence of many words that goes on.")]
    first = printed(monkeypatch, 60, rows)[1]
    assert first.startswith("a        identity.owners  short     A sentence of many")


def test_a_wide_terminal_is_shown_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    heading, first, *_ = printed(monkeypatch, 100, ROWS)
    assert heading.split() == list(COLUMNS)
    assert first.startswith("jsonl-s2-444008db5a4784d1  jsonl")


@pytest.mark.parametrize(
    ("name", "value", "coloured"),
    [("NO_COLOR", "1", False), ("TERM", "dumb", False), ("TERM", "xterm", True)],
)
def test_colours_are_left_out_where_they_are_not_wanted(
    hermes_home: HermesHome, name: str, value: str, coloured: bool
) -> None:
    (hermes_home.skills / "none").mkdir(parents=True)
    (hermes_home.skills / "none" / "SKILL.md").write_text("---\nname: none\n---\n")
    runner = CliRunner(env={"NO_COLOR": None, name: value})
    failed = runner.invoke(main, ["skills", "show", "none"], color=True)
    warned = runner.invoke(main, ["skills", "list"], color=True)
    assert ("\x1b[" in failed.stderr, "\x1b[" in warned.stderr) == (coloured, coloured)
