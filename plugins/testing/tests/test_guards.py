from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hermes_memory_testing import Before, closed_network
from hermes_memory_testing.guards import NetworkClosed, files_below, sees_descriptors


def test_a_connection_is_refused_and_noted() -> None:
    with closed_network() as tried, socket.socket() as line, pytest.raises(NetworkClosed):
        line.connect(("127.0.0.1", 9))
    assert tried == ["socket.connect(('127.0.0.1', 9))"]


def test_a_child_process_is_refused() -> None:
    with closed_network(), pytest.raises(NetworkClosed):
        subprocess.run([sys.executable, "-c", "pass"], check=True)


def test_the_network_is_open_again_afterwards() -> None:
    with closed_network():
        pass
    assert socket.getaddrinfo("127.0.0.1", 80)


def test_a_thread_that_goes_on_is_left(tmp_path: Path) -> None:
    before, end = Before((tmp_path,)), threading.Event()
    thread = threading.Thread(target=end.wait, name="stays")
    thread.start()
    assert before.left(within=0.0).threads == ("stays",)
    end.set()
    assert before.left().threads == ()
    thread.join()


@pytest.mark.skipif(not sees_descriptors(), reason="the system does not tell")
def test_open_files_of_the_folders_and_sockets_are_left(tmp_path: Path) -> None:
    before = Before((tmp_path,))
    with (tmp_path / "notes").open("w"), socket.socket():
        left = before.left(within=0.0)
    assert left.files == (str(tmp_path / "notes"),)
    assert len(left.sockets) == 1


def test_a_changed_variable_is_named_without_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Before((tmp_path,))
    monkeypatch.setitem(os.environ, "NOTES_TOKEN", "secret")
    assert before.left(within=0.0).process == ("environment NOTES_TOKEN",)


def test_files_below_are_found_in_every_depth(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()
    assert files_below(tmp_path) == {str(tmp_path / "a" / "b" / "c")}
