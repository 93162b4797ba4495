"""`hermes-memory logs`, and that the command line keeps quiet about what the log has."""

from __future__ import annotations

import json

from click.testing import CliRunner

from hermes_core.cli import main
from hermes_core.home import HermesHome
from hermes_core.logs import LogFile


def test_the_last_lines_are_shown_newest_last(hermes_home: HermesHome) -> None:
    LogFile(hermes_home).write("error", "outbox.dead_letter", {"provider": "notes", "error": "full"})
    LogFile(hermes_home).write("info", "log", {"logger": "x", "message": "all is well"})
    done = CliRunner().invoke(main, ["logs"])
    assert done.exit_code == 0
    assert "provider=notes error=full" in done.output
    assert done.output.index("outbox.dead_letter") < done.output.index("all is well")


def test_json_gives_the_lines_as_they_are_and_levels_leave_out_the_rest(hermes_home: HermesHome) -> None:
    for level in ("info", "warning", "error"):
        LogFile(hermes_home).write(level, "x", {"reason": level})  # type: ignore[arg-type]
    done = CliRunner().invoke(main, ["logs", "--json", "-n", "1", "--level", "warning"])
    (line,) = done.output.splitlines()
    assert json.loads(line)["reason"] == "error"


def test_an_empty_log_says_so(hermes_home: HermesHome) -> None:
    assert "empty" in CliRunner().invoke(main, ["logs"]).output


def test_a_command_prints_no_log_lines_and_leaves_no_handler(hermes_home: HermesHome) -> None:
    import logging

    before = list(logging.getLogger().handlers)
    hermes_home.plugins.joinpath("broken").mkdir(parents=True)
    hermes_home.plugins.joinpath("broken/__init__.py").write_text("import hermes_core\nMemoryProvider\n")
    done = CliRunner().invoke(main, ["memory", "use", "broken"])
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "was not loaded" in LogFile(hermes_home).read()[-1]["message"]
    assert logging.getLogger().handlers == before


def test_what_was_done_unasked_is_in_the_log_and_not_on_the_screen(hermes_home: HermesHome) -> None:
    CliRunner().invoke(main, ["memory", "add", "Has a cat"])
    hermes_home.memory_md.write_text("Has two cats")
    added = CliRunner().invoke(main, ["memory", "add", "Likes rye"])
    assert "adopted an edit of" not in added.stdout + added.stderr
    assert "adopted an edit of" in CliRunner().invoke(main, ["logs"]).stdout
    hermes_home.memory_md.write_text("Has three cats")
    assert "info: hermes_core.curated.files: adopted" in (
        CliRunner().invoke(main, ["--debug", "memory", "add", "Likes tea"]).stderr
    )
