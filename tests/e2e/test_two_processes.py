"""Two hosts on one home, each with its own memory open, lose nothing of one another."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from hermes_core import HermesHome, open_memory
from tests.forked import python
from tests.rounds import rounds

ADDS = rounds(200)

ADD_MANY = """
import sys
from hermes_core import open_memory

with open_memory(provider="") as memory:
    for number in range(int(sys.argv[2])):
        result = memory.change_memory("add", "memory", f"{sys.argv[1]} {number}")
        assert result["success"], result
"""


@pytest.mark.shortened
def test_two_processes_that_add_to_one_file_lose_no_entry(home: HermesHome) -> None:
    names = ("left", "right")
    adding = [subprocess.Popen([*python(), "-c", ADD_MANY, name, str(ADDS)]) for name in names]
    assert [process.wait(250) for process in adding] == [0, 0]
    with open_memory(home, provider="") as memory:
        entries = memory.curated.entries("memory")
    assert len(entries) == 2 * ADDS
    for name in names:
        assert [entry for entry in entries if entry.startswith(name)] == [f"{name} {n}" for n in range(ADDS)]


def test_two_processes_that_drain_one_provider_deliver_each_turn_once_and_in_order(hosts: Any) -> None:
    hosts.start(24, sessions="ac")
    hosts.start(24, sessions="bc")
    for number in (1, 2):
        hosts.wait("done", number)
    hosts.finish()
    for kind in ("turn", "write"):
        taken = [(call["session"], call["text"]) for call in hosts.taken(kind)]
        assert sorted(taken) == sorted((ack.session, ack.text) for ack in hosts.acks(kind))
        for run in ("001", "002"):
            own = [text for _, text in taken if f" {run}-" in text]
            for session in "abc":
                of_session = [text for where, text in taken if where == session and text in own]
                assert of_session == sorted(of_session)


def test_what_one_process_writes_another_finds_at_once(home: HermesHome) -> None:
    with open_memory(home, provider="") as memory:
        session = memory.start_session("here")
        memory.end_turn(session, "My cat is called Momo", "Noted.")
        memory.change_memory("add", "user", "Has a cat")
        command = [*python(), "-m", "hermes_core", "recall", "--json", "What is my cat called?"]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    texts = [result["text"] for result in found["results"]]
    assert "Has a cat" in texts
    assert "My cat is called Momo" in texts
