"""The commands, as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from hermes_hindsight import HindsightProvider

from plugins.hindsight.tests.stand_in import Bank, HindsightServer

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, server: HindsightServer) -> Invoke:
    """`hermes-memory --home ... hindsight ...`, in a home whose server is the stand-in."""
    settings = {"mode": "local_external", "api_url": server.url}
    (tmp_path / "hindsight.json").write_text(json.dumps(settings))
    group = click.Group("hindsight")
    HindsightProvider().register_cli(group)
    options = [click.Option(["--home"]), click.Option(["--profile"])]
    root = click.Group("hermes", {"hindsight": group}, params=options)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(root, ["--home", str(tmp_path), "hindsight", *arguments])

    return run


@pytest.fixture
def bank(server: HindsightServer) -> Bank:
    """The person's own bank: a document, one operation that is done and one that failed."""
    item = {"content": "Mel typed \x1b[31mred tea", "tags": [], "metadata": None}
    operations: dict[str, Any] = {
        f"{n}0319cc63-5f52-4f8c-b7ba-36aeee63e44"[:36]: {
            "id": f"{n}0319cc63-5f52-4f8c-b7ba-36aeee63e44"[:36],
            "status": status,
            "items": [],
            "error": error,
        }
        for n, (status, error) in enumerate([("completed", None), ("failed", "no facts")])
    }
    documents = {"d": {"text": item["content"], "tags": [], "item": item}}
    server.banks["hermes"] = Bank(documents, operations)
    return server.banks["hermes"]


def test_status_tells_server_bank_and_counts(invoke: Invoke, bank: Bank, server: HindsightServer) -> None:
    told = json.loads(invoke("status", "--json").stdout)
    assert told == {
        "url": server.url,
        "version": "1.1.0",
        "bank": "hermes",
        "documents": 1,
        "memories": {"world": 1},
        "operations": {"completed": 1, "failed": 1},
    }
    assert "documents: 1\nmemories: world 1\n" in invoke("status").stdout


def test_a_bank_that_is_not_there_yet_is_empty(invoke: Invoke) -> None:
    assert json.loads(invoke("status", "--json").stdout)["documents"] == 0
    result = invoke("recall", "tea", "--bank", "none")
    assert (result.stdout, result.stderr, result.exit_code) == ("", "Nothing was found.\n", 0)


def test_recall_shows_scores_and_drives_no_terminal(invoke: Invoke, bank: Bank) -> None:
    (found,) = json.loads(invoke("recall", "Mel", "typed", "--json").stdout)
    assert (found["text"], found["type"]) == ("Mel typed \x1b[31mred tea", "world")
    assert (
        invoke("recall", "Mel", "typed").stdout
        == "1.000  [world] Mel typed \N{REPLACEMENT CHARACTER}[31mred tea\n"
    )


def test_operations_are_listed_the_failed_ones_alone_and_tried_again(invoke: Invoke, bank: Bank) -> None:
    assert [one["status"] for one in json.loads(invoke("operations", "--json").stdout)] == [
        "failed",
        "completed",
    ]
    assert invoke("operations", "--failed").stdout.split() == [
        "2026-11-22T09:00:00",
        "failed",
        "retain",
        "no",
        "facts",
    ]
    assert "tried again" in invoke("operations", "--retry").stdout
    assert {one["status"] for one in bank.operations.values()} == {"completed"}
    assert invoke("operations", "--failed").stderr == "Nothing was found.\n"


@pytest.mark.parametrize("command", ["start", "stop"])
def test_there_is_nothing_to_start_or_stop_in_another_mode(invoke: Invoke, command: str) -> None:
    result = invoke(command)
    assert result.exit_code == 1
    assert "mode is not local_embedded" in result.stderr
