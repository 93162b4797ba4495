"""`hermes-memory doctor` and the model that `hermes-memory chat` talks with."""

from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_memory_testing.http_server import Raw, StandIn
from hermes_memory_testing.model_server import ModelServer
from tests.cli.conftest import Hermes


def configure(home: HermesHome, **model: object) -> None:
    home.path.mkdir(exist_ok=True)
    home.config_yaml.write_text(json.dumps({"model": model}), encoding="utf-8")


def findings(hermes: Hermes, code: int = 0) -> dict[str, Any]:
    """What doctor says of models, by what they are for."""
    found = json.loads(hermes("doctor", "--json", code=code).stdout)["findings"]
    return {one["what"]: one for one in found if "model" in one["what"]}


def test_without_a_model_nothing_is_said_of_one(hermes: Hermes) -> None:
    assert findings(hermes) == {}


def test_a_model_that_its_server_lists_is_well(hermes: Hermes, hermes_home: HermesHome) -> None:
    with ModelServer([]) as server:
        configure(hermes_home, base_url=server.base_url, name="scripted")
        assert findings(hermes)["model"]["state"] == "ok"


def test_a_name_that_the_server_does_not_list_is_told_with_those_it_has(
    hermes: Hermes, hermes_home: HermesHome
) -> None:
    with ModelServer([]) as server:
        configure(hermes_home, base_url=server.base_url, name="scriptd")
        model = findings(hermes)["model"]
    assert model["state"] == "note"
    assert "lists no 'scriptd'; it has 'scripted'" in model["detail"]


@pytest.mark.parametrize(
    ("status", "code", "state", "cure"),
    [(401, 3, "failed", "no key was sent"), (404, 0, "warning", "check model.name and model.base_url")],
)
def test_a_server_that_refuses_is_named_with_its_cure(
    hermes: Hermes, hermes_home: HermesHome, status: int, code: int, state: str, cure: str
) -> None:
    with StandIn() as server:
        server.route("GET", "/v1/models", lambda _: (status, {"error": {"message": "no"}}))
        configure(hermes_home, base_url=f"{server.url}/v1", name="m")
        model = findings(hermes, code)["model"]
    assert (model["state"], cure in model["remedy"]) == (state, True)


def test_a_server_that_is_down_is_named_with_its_cure(hermes: Hermes, hermes_home: HermesHome) -> None:
    with StandIn() as server, server.refusing():
        configure(hermes_home, base_url=f"{server.url}/v1", name="m")
        model = findings(hermes, 3)["model"]
    assert "is the server running?" in model["remedy"]


def test_the_model_for_summaries_is_asked_too(hermes: Hermes, hermes_home: HermesHome) -> None:
    with ModelServer([]) as server:
        configure(hermes_home, base_url=server.base_url, name="scripted")
        hermes("config", "set", "auxiliary.name", "scripted")
        assert findings(hermes).keys() == {"model", "auxiliary model"}


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ([{"id": "m", "object": "model"}], "ok"),
        ({"data": [{"id": "m"}, {"id": None}, "x"]}, "ok"),
        ({"data": None}, "ok"),
        ("a page of a web interface", "failed"),
        ([], "ok"),
        ({"data": 5}, "ok"),
        (None, "failed"),
        (Raw(b"<html></html>", {"Content-Type": "text/html"}), "failed"),
    ],
)
def test_any_answer_of_a_server_leaves_the_rest_of_the_report(
    hermes: Hermes, hermes_home: HermesHome, answer: object, state: str
) -> None:
    with StandIn() as server:
        server.route("GET", "/v1/models", lambda _: (200, answer))
        configure(hermes_home, base_url=f"{server.url}/v1", name="m")
        assert findings(hermes, 3 if state == "failed" else 0)["model"]["state"] == state


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def sending(pieces: Iterable[bytes], pause: float) -> Iterator[str]:
    """The address of a server that answers once, with these pieces."""
    ended = threading.Event()

    def answer() -> None:
        with suppress(OSError), listening.accept()[0] as connection:
            connection.recv(65536)
            for piece in pieces:
                if ended.wait(pause):
                    return
                connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10.0)  # nobody comes where a busy machine took up the client's time before
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        ended.set()
        thread.join()


@pytest.mark.parametrize("whole", [HEAD + b"X-Long: " + b"a" * 400, HEAD + b"\r\n" + b" " * 400])
def test_a_server_that_drips_is_waited_for_within_one_deadline(
    hermes: Hermes, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch, whole: bytes
) -> None:
    monkeypatch.setattr("hermes_memory_agent.model.LIST_TIMEOUT_S", 0.2)
    with sending((bytes([byte]) for byte in whole), 0.1) as address:
        configure(hermes_home, base_url=address, name="m")
        began = time.monotonic()
        model = findings(hermes, 3)["model"]
        took = time.monotonic() - began
    assert "did not send the list of its models within 0.2 s" in model["detail"]
    assert took < 400 * 0.1


def test_a_list_of_models_that_has_no_end_is_not_read_to_it(
    hermes: Hermes, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_memory_agent.model.MAX_LIST_BYTES", 100_000)
    endless = itertools.chain([HEAD + b"\r\n["], itertools.repeat(b'{"id": "m"},' * 1000))
    with sending(endless, 0) as address:
        configure(hermes_home, base_url=address, name="m")
        assert "sent no list of its models" in findings(hermes, 3)["model"]["detail"]


def test_telemetry_without_its_package_is_a_failed_line(
    hermes: Hermes, hermes_home: HermesHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    hermes_home.path.mkdir(exist_ok=True)
    hermes_home.config_yaml.write_text("telemetry: {enabled: true}")
    monkeypatch.delitem(sys.modules, "hermes_memory_telemetry.telemetry", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    lines = json.loads(hermes("doctor", "--json", code=3).stdout)["findings"]
    (line,) = [line for line in lines if line["what"] == "telemetry"]
    assert line["state"] == "failed"
    assert "no extension makes it" in line["detail"]
    assert "telemetry.enabled" in line["remedy"]
