"""Several processes serve one home: a turn goes on in any of them, and none of them takes anything acknowledged along."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from hermes_core import HermesHome, open_memory
from hermes_core.loopback import listen
from hermes_memory_http.command import Supervisor
from plugins.http.tests.conftest import new_id, new_token, serving_program
from tests.rounds import ALL, rounds

CLIENTS = 64 if ALL else 8
PROCESSES = 4 if ALL else 2

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc"),
    pytest.mark.slow,
]


@pytest.fixture(params=["sqlite", "postgresql"])
def home(request: pytest.FixtureRequest, hermes_home: HermesHome) -> HermesHome:
    if request.param == "postgresql":
        storage = {
            "url": request.getfixturevalue("postgres_url"),
            "schema": request.getfixturevalue("postgres_schema"),
        }
        hermes_home.path.mkdir(parents=True)
        hermes_home.config_yaml.write_text(json.dumps({"storage": storage}))
    return hermes_home


def workers_of(program: subprocess.Popen[str]) -> list[int]:
    """Return the processes that serve: the children of the program, without the one that tracks its resources."""
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    commands = {int(child): Path(f"/proc/{child}/cmdline") for child in children}
    found = []
    for child, path in commands.items():
        with contextlib.suppress(OSError):
            if b"spawn_main" in path.read_bytes():
                found.append(child)
    return found


@dataclass
class Talker:
    """A client that begins and finishes turns in a conversation of its own, each request on a new connection.

    Attributes:
        said: The messages whose turn the server acknowledged.
    """

    root: str
    token: str
    name: str
    stop: threading.Event
    said: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Send a request until it is answered, as a client does that repeats what it has no answer to."""
        while not self.stop.is_set():
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.post(
                    f"{self.root}/v1/conversations/{self.name}{path}",
                    json=body,
                    params={"user": f"app:{self.name}"},
                    headers={"authorization": f"Bearer {self.token}"},
                    timeout=60,
                )
                if answer.status_code == 200:
                    result: dict[str, Any] = answer.json()
                    return result
                if answer.status_code != 503:
                    self.refused.append(answer.text)
                    return None
        return None

    def talk(self) -> None:
        while not self.stop.is_set():
            turn_id, text = new_id(), f"{self.name} says {len(self.said)}"
            if self.post("/turns", {"message": text, "turn_id": turn_id}) is None:
                return
            if self.post(f"/turns/{turn_id}/finish", {"answer": f"heard: {text}"}) is None:
                return
            self.said.append(text)


@contextlib.contextmanager
def talking(home: HermesHome, root: str, token: str) -> Iterator[list[Talker]]:
    """Let all clients talk until the block ends."""
    stop = threading.Event()
    talkers = [Talker(root, token, f"c{number}", stop) for number in range(CLIENTS)]
    threads = [threading.Thread(target=talker.talk) for talker in talkers]
    for thread in threads:
        thread.start()
    try:
        yield talkers
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def wait_until(talkers: list[Talker], count: int) -> None:
    """Wait until the server has acknowledged so many further turns."""
    pause, before = threading.Event(), sum(len(talker.said) for talker in talkers)
    while sum(len(talker.said) for talker in talkers) < before + count:
        assert not any(talker.refused for talker in talkers), [talker.refused for talker in talkers]
        pause.wait(0.02)


@pytest.mark.shortened
@pytest.mark.timeout(3600)
@pytest.mark.names_engines("each of them")
def test_killed_processes_lose_nothing_that_was_acknowledged(home: HermesHome) -> None:
    token, draw = new_token(home), random.Random(1)
    options = ("--workers", str(PROCESSES), "--rate", "100000")
    with serving_program(home, *options) as (program, root), talking(home, root, token) as talkers:
        for _ in range(rounds(20)):
            wait_until(talkers, CLIENTS)
            os.kill(draw.choice(workers_of(program)), signal.SIGKILL)
        wait_until(talkers, CLIENTS)
        os.killpg(program.pid, signal.SIGKILL)
    assert [talker.refused for talker in talkers if talker.refused] == []
    with open_memory(home) as memory:
        for talker in talkers:
            messages = memory.sessions.get_messages(talker.name)
            questions = [message.content for message in messages if message.role == "user"]
            # A turn that was stored and not acknowledged any more may be there besides: none is there twice.
            assert len(set(questions)) == len(questions)
            assert questions[: len(talker.said)] == talker.said
            assert len(messages) == 2 * len(questions)


@pytest.mark.names_engines("each of them")
def test_a_turn_that_begins_in_one_process_is_finished_in_another(home: HermesHome) -> None:
    token, turn_id = new_token(home, "app:ann"), new_id()
    headers = {"authorization": f"Bearer {token}"}
    path = "/v1/conversations/chat-1/turns"
    with serving_program(home) as (_, one), serving_program(home) as (_, other):
        body = {"message": "hello", "turn_id": turn_id}
        opened = httpx.post(f"{one}{path}", json=body, headers=headers, timeout=60).json()
        assert httpx.get(f"{other}{path}/{turn_id}", headers=headers, timeout=60).json() == opened
        more = {"messages": [{"role": "assistant", "content": "Let me see."}], "after": 0}
        assert httpx.post(
            f"{other}{path}/{turn_id}/messages", json=more, headers=headers, timeout=60
        ).json() == {"added": 1}
        done = httpx.post(
            f"{one}{path}/{turn_id}/finish", json={"answer": "Hi."}, headers=headers, timeout=60
        )
        assert done.status_code == 200, done.text
        messages = httpx.get(f"{other}/v1/conversations/chat-1/messages", headers=headers, timeout=60).json()
    assert [message["content"] for message in messages["messages"]] == ["hello", "Let me see.", "Hi."]


def test_processes_end_with_the_one_that_started_them(hermes_home: HermesHome) -> None:
    with serving_program(hermes_home, "--workers", "2") as (program, root):
        assert httpx.get(f"{root}/readyz", timeout=60).status_code == 200
        workers = workers_of(program)
        assert len(workers) == 2
        program.kill()
        program.wait()
        pause = threading.Event()
        for worker in workers:
            # A process that has ended may wait for somebody who asks for its exit code.
            while Path(f"/proc/{worker}").exists() and " Z " not in Path(f"/proc/{worker}/stat").read_text():
                pause.wait(0.02)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{root}/healthz")


def test_a_process_that_dies_before_it_answers_is_replaced_at_once() -> None:
    with listen(0) as listener:
        config = uvicorn.Config("no_such_module:app", workers=1, timeout_worker_healthcheck=3600)
        supervisor = Supervisor(config, [listener])
        supervisor.init_processes()
        (first,) = supervisor.processes
        assert first.pid is not None
        os.kill(first.pid, signal.SIGSTOP)  # it is asked, and answers nothing
        asking = threading.Thread(target=supervisor.keep_subprocess_alive, daemon=True)
        asking.start()
        while not first.child_conn.closed:
            asking.join(0.01)
        os.kill(first.pid, signal.SIGKILL)
        asking.join()
        (second,) = supervisor.processes
        second.kill()
        second.join()
        assert second is not first
