"""The log of a home: one line an event, private, rotated, without secrets, and never in the way."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from hermes_core import logs
from hermes_core.contract.values import Event
from hermes_core.home import HermesHome
from hermes_core.logs import MAX_OLD_FILES, LogFile, LogHandler, logging_to
from hermes_memory_testing.fakes import Clock

KEY = "sk-proj-abcdefghij0123456789abcd"


@pytest.fixture
def log(hermes_home: HermesHome) -> LogFile:
    return LogFile(hermes_home, clock=Clock(0.0))


def test_an_event_is_one_json_line_with_time_level_kind_and_process(log: LogFile) -> None:
    log.on_event(Event("provider.call", 1.5, {"provider": "notes", "error": "two\nlines"}))
    (line,) = log.path.read_text().splitlines()
    found = json.loads(line)
    assert found.pop("pid")
    assert found == {
        "at": "1970-01-01T00:00:01.500+00:00",
        "level": "warning",
        "kind": "provider.call",
        "provider": "notes",
        "error": "two\nlines",
    }


def test_the_file_is_private_from_its_first_byte(log: LogFile) -> None:
    log.write("info", "x", {})
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.path.parent.stat().st_mode) == 0o700


def test_secrets_do_not_reach_the_file(log: LogFile) -> None:
    log.write("error", "x", {"error": f"refused {KEY}", "api_key": "hunter2hunter2", "deep": {"token": KEY}})
    with logging_to(log):
        logging.getLogger("some.sdk").warning("sent %s", KEY)
    text = log.path.read_text()
    assert KEY not in text
    assert "hunter2" not in text


def test_a_program_logs_into_the_file_and_not_on_standard_error(
    log: LogFile, capfd: pytest.CaptureFixture[str]
) -> None:
    with logging_to(log):
        logging.getLogger("some.sdk").error("it broke in %d ways", 2)
    assert [line["message"] for line in log.read()] == ["it broke in 2 ways"]
    assert capfd.readouterr().err == ""


def test_a_fault_is_logged_with_its_traceback(log: LogFile) -> None:
    with logging_to(log):
        try:
            int(f"no number but {KEY}")
        except ValueError:
            logging.getLogger("some.sdk").exception("it broke")
    (line,) = log.read()
    assert line["message"] == "it broke"
    assert "ValueError: invalid literal for int()" in line["traceback"]
    assert KEY not in log.path.read_text()


def test_our_records_are_logged_and_warnings_of_other_libraries(log: LogFile) -> None:
    root = logging.getLogger()
    before = root.level
    with logging_to(log):
        for name in ("hermes_core.curated", "hermes_notes.provider", "some.sdk"):
            logging.getLogger(name).debug("not this")
            logging.getLogger(name).info("done by %s", name)
        logging.getLogger("some.sdk").warning("wrong")
    assert root.level == before
    assert [(line["level"], line["message"]) for line in log.read()] == [
        ("info", "done by hermes_core.curated"),
        ("info", "done by hermes_notes.provider"),
        ("warning", "wrong"),
    ]


def test_a_program_that_logs_more_itself_goes_on_doing_so(log: LogFile) -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.DEBUG)
    try:
        with logging_to(log):
            assert root.level == logging.DEBUG
        assert root.level == logging.DEBUG
    finally:
        root.setLevel(before)


def test_a_record_that_cant_be_formatted_is_written_as_it_stands(log: LogFile) -> None:
    LogHandler(log).emit(logging.LogRecord("some.sdk", logging.ERROR, "", 0, "%d ways", ("x",), None))
    assert log.read()[0]["message"] == "%d ways"


def test_a_record_of_an_event_is_not_written_a_second_time(log: LogFile) -> None:
    with logging_to(log):
        logging.getLogger("hermes_core").warning("told", extra={"event": "provider.call"})
    assert log.read() == []


def test_a_full_file_moves_on_and_the_oldest_goes(hermes_home: HermesHome) -> None:
    log = LogFile(hermes_home, max_bytes=1000, clock=Clock(0.0))
    for number in range(100):
        log.write("info", "x", {"number": number, "text": "." * 100})
    files = sorted(path.name for path in hermes_home.logs.glob("hermes.log*") if path.suffix != ".lock")
    assert files == ["hermes.log", *(f"hermes.log.{n}" for n in range(1, MAX_OLD_FILES + 1))]
    assert all(path.stat().st_size <= 1000 for path in hermes_home.logs.glob("hermes.log*"))
    numbers = [line["number"] for line in log.read(limit=1000)]
    assert numbers == list(range(100 - len(numbers), 100))


def test_the_last_lines_of_a_level_are_read(log: LogFile) -> None:
    for level in ("info", "warning", "error", "info"):
        log.write(level, level, {})  # type: ignore[arg-type]
    assert [line["kind"] for line in log.read(limit=2)] == ["error", "info"]
    assert [line["kind"] for line in log.read(level="warning")] == ["warning", "error"]


def test_a_broken_line_is_shown_and_hides_no_other(log: LogFile) -> None:
    log.write("info", "before", {})
    with log.path.open("a") as file:
        file.write('{"at": "half\n')
    log.write("info", "after", {})
    assert [line["kind"] for line in log.read()] == ["before", "unreadable", "after"]


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_logged_text_never_begins_a_line_of_its_own(log: LogFile, end: str) -> None:
    said = f"it broke{end}{json.dumps({'at': '', 'level': 'error', 'kind': 'forged', 'pid': 1})}"
    with logging_to(log):
        logging.getLogger("some.sdk").error(said)
    assert len(log.path.read_text().splitlines()) == 1
    assert [line["message"] for line in log.read()] == [said]


def test_a_line_of_another_program_may_hold_any_sign(log: LogFile) -> None:
    """Lines end at "\\n" alone, as JSON escapes that one and may leave U+2028 as it is."""
    written = {"at": "", "level": "info", "kind": "x", "pid": 1, "text": "a\u2028b\x85c"}
    log.path.parent.mkdir(parents=True)
    log.path.write_text(json.dumps(written, ensure_ascii=False) + "\n")
    assert log.read() == [written]


def test_nothing_in_the_file_drives_a_terminal_that_shows_it(log: LogFile) -> None:
    log.write("error", "x", {"title": "\x1b[31m \x9b2J \u202e"})
    assert log.path.read_text().isascii()
    assert log.read()[0]["title"] == "\x1b[31m \x9b2J \u202e"


def test_a_key_at_the_cut_of_a_long_text_is_not_left_in_half(log: LogFile) -> None:
    log.write("error", "x", {"error": "." * 1985 + " " + KEY})
    assert KEY[:12] not in log.path.read_text()


@pytest.mark.skipif(os.name == "nt", reason="pipes are of POSIX")
def test_a_log_that_is_no_file_is_not_waited_for(hermes_home: HermesHome) -> None:
    hermes_home.logs.mkdir(parents=True)
    os.mkfifo(hermes_home.log_file)  # as a link to /dev/stdout in a container
    assert LogFile(hermes_home).read() == []


def test_a_full_file_that_cant_move_on_grows_and_loses_no_line(hermes_home: HermesHome) -> None:
    log = LogFile(hermes_home, max_bytes=200)
    for number in range(5):
        if number == 1:
            log.path.with_name("hermes.log.lock").mkdir()  # as one that belongs to root
        assert log.write("error", "x", {"number": number})
    assert [line["number"] for line in log.read()] == [0, 1, 2, 3, 4]


def test_a_log_that_cant_be_written_stops_nobody(hermes_home: HermesHome) -> None:
    hermes_home.path.mkdir()
    hermes_home.logs.write_text("in the way")
    assert not LogFile(hermes_home).write("info", "x", {})


def test_a_failed_call_of_a_provider_is_in_the_log(hermes_home: HermesHome) -> None:
    from hermes_core import open_memory
    from hermes_memory_testing.fakes import RaisingProvider

    with open_memory(hermes_home, provider=RaisingProvider(RuntimeError(f"no {KEY}"))) as memory:
        memory.begin_turn(memory.start_session(), "hello")
    lines = LogFile(hermes_home).read()
    failed = [line for line in lines if line["kind"] == "provider.call" and line["hook"] == "prefetch"]
    assert len(failed) == 1
    assert "RuntimeError" in failed[0]["error"]
    assert KEY not in Path(hermes_home.log_file).read_text()


def test_of_a_long_log_no_more_is_parsed_than_is_asked_for(
    log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(100):
        log.write("info", str(number), {})
    parsed, parse = [], logs._parsed

    def counted(line: str) -> dict[str, Any]:
        parsed.append(line)
        return parse(line)

    monkeypatch.setattr(logs, "_parsed", counted)
    assert [one["kind"] for one in log.read(limit=3)] == ["97", "98", "99"]
    assert len(parsed) == 3
