from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core.errors import BackendUnavailable, ProviderUnavailable
from hermes_core.kit import poll, process
from hermes_core.kit.process import Service, child_environment, run, run_in_terminal

PYTHON = sys.executable
SLEEPING_CHILD = (
    "import subprocess, sys, pathlib, time;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
    "pathlib.Path(sys.argv[1]).write_text(str(child.pid)); time.sleep(60)"
)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A killed process whose parent is gone may wait for init to collect it.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def soon(seen: Callable[[], bool]) -> bool:
    return poll(seen, 30, 0.01)


def test_a_program_ends_with_the_process_that_waits_for_it_on_a_thread(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    code = (
        "import pathlib, sys, threading, time; from hermes_core.kit.process import run;"
        "command = [sys.executable, '-c', sys.argv[1], sys.argv[2]];"
        "threading.Thread(target=run, args=(command,), kwargs={'timeout': 60}, daemon=True).start();"
        "file = pathlib.Path(sys.argv[2])\nwhile not file.exists() or not file.read_text(): time.sleep(0.01)"
    )
    run([PYTHON, "-c", code, SLEEPING_CHILD, str(told)], timeout=60, env=dict(os.environ))
    assert soon(lambda: not alive(int(told.read_text())))


def test_a_program_gives_its_code_and_both_outputs() -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = run([PYTHON, "-c", code], timeout=60)
    assert (done.code, done.out.strip(), done.err.strip()) == (3, "out", "err")


def test_a_program_reads_what_it_is_given_and_else_nothing() -> None:
    echo = [PYTHON, "-c", "import sys; print(repr(sys.stdin.read()))"]
    assert run(echo, timeout=60, stdin="héllo").out.strip() == "'héllo'"
    assert run(echo, timeout=60).out.strip() == "''"


def test_lines_are_its_json_values_and_noise_is_left_out() -> None:
    code = "print('{\"a\": 1}'); print('warning: old'); print('[2]')"
    assert list(run([PYTHON, "-c", code], timeout=60).lines()) == [{"a": 1}, [2]]


def test_a_value_may_hold_signs_at_which_other_programs_end_a_line() -> None:
    code = r"print('[\"a\u2028b\x85c\"]')"
    assert list(run([PYTHON, "-X", "utf8", "-c", code], timeout=60).lines()) == [["a\u2028b\x85c"]]


def test_values_are_those_of_one_json_text_over_many_lines_too() -> None:
    code = "import json; print(json.dumps({'a': [1, {'b': 2}]}, indent=2))"
    assert run([PYTHON, "-c", code], timeout=60).values() == [{"a": [1, {"b": 2}]}]
    assert run([PYTHON, "-c", "print('[1]'); print('{\"cut\": '); print('[2]')"], timeout=60).values() == [
        [1],
        [2],
    ]
    assert run([PYTHON, "-c", "print('Unexpected error')"], timeout=60).values() == []


def test_a_program_in_the_terminal_prints_there_and_its_code_is_returned(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import os; print(os.getcwd(), os.environ['WHO']); raise SystemExit(3)"
    assert run_in_terminal([PYTHON, "-c", code], env=child_environment({"WHO": "mel"}), cwd=tmp_path) == 3
    assert capfd.readouterr().out == f"{tmp_path} mel\n"
    with pytest.raises(ProviderUnavailable, match=r"can't start 'no-such-program'.*is it installed"):
        run_in_terminal(["no-such-program"])


def test_a_program_past_its_deadline_is_killed_with_all_it_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    with pytest.raises(BackendUnavailable, match=r"has not ended after 4 s"):
        run([PYTHON, "-c", SLEEPING_CHILD, str(told)], timeout=4)
    assert soon(lambda: not alive(int(told.read_text())))


def test_a_grandchild_that_holds_the_output_open_does_not_hold_us() -> None:
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(90)'])"
    started = time.monotonic()
    assert run([PYTHON, "-c", code], timeout=60).code == 0
    assert time.monotonic() - started < 60


def test_a_program_that_is_not_there_is_one_line_with_what_to_do() -> None:
    with pytest.raises(ProviderUnavailable, match=r"can't start 'no-such-program'.*is it installed"):
        run(["no-such-program"], timeout=1)


def test_the_environment_holds_no_key_of_others() -> None:
    seen = child_environment(
        {"BRV_DATA_DIR": "/d"}, {"PATH": "/bin", "OPENAI_API_KEY": "sk-1", "https_proxy": "p"}
    )
    assert seen == {"PATH": "/bin", "https_proxy": "p", "BRV_DATA_DIR": "/d"}


def test_more_variables_are_passed_on_by_name() -> None:
    ours = {"BRV_IAM_BASE_URL": "http://i", "BRV_API_KEY": "k", "XDG_DATA_HOME": "/d", "PATH": "/bin"}
    seen = child_environment({"XDG_DATA_HOME": "/mine"}, ours, also=("BRV_*_URL", "XDG_*_HOME"))
    assert seen == {"BRV_IAM_BASE_URL": "http://i", "XDG_DATA_HOME": "/mine", "PATH": "/bin"}


def test_a_service_runs_until_it_is_stopped(tmp_path: Path) -> None:
    told, log = tmp_path / "pid", tmp_path / "logs" / "service.log"
    service = Service([PYTHON, "-c", SLEEPING_CHILD, str(told)], log=log)
    service.start()
    try:
        service.wait_until(lambda: told.exists() and told.read_text() != "", timeout=60)
        pid = service.pid
        service.start()
        assert service.running
        assert service.pid == pid
    finally:
        service.stop()
    assert not service.running
    assert soon(lambda: not alive(int(told.read_text())))


def test_the_error_of_a_service_that_ends_quotes_its_last_output(tmp_path: Path) -> None:
    service = Service([PYTHON, "-c", "raise SystemExit('port is taken')"], log=tmp_path / "log")
    service.start()
    with pytest.raises(BackendUnavailable, match=r"ended by itself: port is taken"):
        service.wait_until(lambda: False, timeout=60)
    service.stop()


def test_a_service_that_never_gets_ready_is_an_error(tmp_path: Path) -> None:
    service = Service([PYTHON, "-c", "import time; time.sleep(60)"], log=tmp_path / "log")
    service.start()
    try:
        with pytest.raises(BackendUnavailable, match=r"not ready after 0.2 s"):
            service.wait_until(lambda: False, timeout=0.2)
    finally:
        service.stop()


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for its program")
def test_on_windows_a_program_ends_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows knows no groups of processes: its own program ends a tree of them."""
    killer = tmp_path / "System32" / "taskkill.exe"
    killer.parent.mkdir()
    killer.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nkill -9 -"$2"\n')
    killer.chmod(0o755)
    monkeypatch.setenv("SYSTEMROOT", str(tmp_path))
    monkeypatch.setattr(process, "_WINDOWS", True)
    monkeypatch.setattr(process, "_group_flags", lambda: {"start_new_session": True})
    told = tmp_path / "pid"
    service = Service([PYTHON, "-c", SLEEPING_CHILD, str(told)], log=tmp_path / "log")
    service.start()
    service.wait_until(lambda: told.exists() and told.read_text() != "", timeout=60)
    service.stop()
    assert not service.running
    assert (tmp_path / "calls").read_text() == f"/PID {service.pid} /T /F\n"
    assert soon(lambda: not alive(int(told.read_text())))


@pytest.mark.skipif(sys.platform == "win32", reason="the program is there")
def test_on_windows_without_its_program_the_child_itself_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYSTEMROOT", str(tmp_path))
    monkeypatch.setattr(process, "_WINDOWS", True)
    monkeypatch.setattr(process, "_group_flags", dict)
    with pytest.raises(BackendUnavailable, match="has not ended"):
        run([PYTHON, "-c", "import time; time.sleep(60)"], timeout=0.1)
