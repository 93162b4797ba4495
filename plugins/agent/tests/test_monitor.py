from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from hermes_memory_agent.monitor import ProcessMonitor, resident_bytes


def test_a_line_tells_memory_threads_and_uptime_from_start_to_end() -> None:
    lines: list[Mapping[str, str]] = []
    with ProcessMonitor(60, report=lines.append):
        assert "agent-monitor" in [thread.name for thread in threading.enumerate()]
    assert len(lines) == 2
    assert all(line["rss"].endswith("MB") and int(line["threads"]) >= 1 for line in lines)


def test_a_program_of_ones_own_has_it_in_its_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), ProcessMonitor(60):
        pass
    assert [line.startswith("process: rss=") for line in caplog.messages] == [True, True]


def test_it_reports_at_its_pace() -> None:
    lines: list[object] = []
    enough = threading.Event()

    def report(line: object) -> None:
        lines.append(line)
        if len(lines) == 4:
            enough.set()

    with ProcessMonitor(0.001, report=report):
        assert enough.wait(60)


def test_it_is_off_by_default() -> None:
    lines: list[object] = []
    with ProcessMonitor(0, report=lines.append):
        pass
    assert lines == []


def test_no_file_that_can_be_opened_is_no_end_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        figures = ProcessMonitor(0).figures()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert int(figures["threads"]) >= 1


def test_the_size_of_this_process_is_plausible() -> None:
    size = resident_bytes()
    assert size is None or 2**20 < size < 2**36
