from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from hermes_memory_testing import Raw, StandIn, only_fields
from tests.manager.conftest import until


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(check=only_fields(memories=frozenset({"text"}))) as server:
        server.route("POST", "/v1/memories", lambda request: {"id": "m1", "text": request.json["text"]})
        server.route("GET", "/v1/memories/*", lambda request: (200, {"path": request.path}))
        yield server


def ask(
    server: StandIn, method: str, path: str, data: Any = None, timeout: float = 5
) -> tuple[int, Any, dict[str, str]]:
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(f"{server.url}{path}", body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, json.loads(exc.read()), dict(exc.headers)


def test_a_route_answers_and_the_request_is_kept(server: StandIn) -> None:
    assert ask(server, "POST", "/v1/memories?dry=1", {"text": "tea"})[:2] == (
        200,
        {"id": "m1", "text": "tea"},
    )
    assert server.requests[0].json == {"text": "tea"}
    assert server.requests[0].query == {"dry": ["1"]}


def test_a_star_stands_for_the_rest_of_a_path(server: StandIn) -> None:
    assert ask(server, "GET", "/v1/memories/42")[1] == {"path": "/v1/memories/42"}


def test_an_unknown_field_is_refused_and_noted(server: StandIn) -> None:
    assert ask(server, "POST", "/v1/memories", {"text": "tea", "user": "ada"})[0] == 422
    assert server.complaints == ["POST /v1/memories has the unknown field 'user'"]


def test_an_unknown_path_is_refused_and_noted(server: StandIn) -> None:
    assert ask(server, "GET", "/v2/memories")[0] == 404
    assert server.complaints == ["no route for GET /v2/memories"]


def test_too_many_requests_says_when_to_come_back(server: StandIn) -> None:
    server.fail("POST", "/v1/memories", status=429, retry_after=2, times=1)
    status, _, headers = ask(server, "POST", "/v1/memories", {"text": "tea"})
    assert (status, headers["Retry-After"]) == (429, "2")
    assert ask(server, "POST", "/v1/memories", {"text": "tea"})[0] == 200


def test_a_fault_happens_as_often_as_told(server: StandIn) -> None:
    server.fail(status=500, times=2)
    assert [ask(server, "GET", "/v1/memories/1")[0] for _ in range(3)] == [500, 500, 200]


def test_an_outage_ends_with_its_context(server: StandIn) -> None:
    with server.outage():
        assert ask(server, "GET", "/v1/memories/1")[0] == 503
    assert ask(server, "GET", "/v1/memories/1")[0] == 200


def ask_until_it_arrives(server: StandIn, data: Any) -> None:
    try:
        ask(server, "POST", "/v1/memories", data, timeout=0.05)
    finally:
        assert until(lambda: server.requests)  # sent in time, perhaps read later


def test_a_server_can_hang_and_does_nothing_of_what_it_was_asked_meanwhile(server: StandIn) -> None:
    done: list[Any] = []
    server.route("POST", "/v1/memories", lambda request: done.append(request.json) or {})
    with server.hanging(), pytest.raises(TimeoutError):
        ask_until_it_arrives(server, {"text": "tea"})
    assert ask(server, "POST", "/v1/memories", {"text": "mate"})[0] == 200
    assert done == [{"text": "mate"}]


def test_connections_can_be_refused_and_the_address_stays(server: StandIn) -> None:
    before = server.url
    with server.refusing(), pytest.raises(urllib.error.URLError, match="refused"):
        ask(server, "GET", "/v1/memories/1")
    assert server.url == before
    assert ask(server, "GET", "/v1/memories/1")[0] == 200


def test_a_body_can_be_cut(server: StandIn) -> None:
    server.fail("GET", "/v1/memories/*", cut=True, times=1)
    with pytest.raises(http.client.IncompleteRead):
        ask(server, "GET", "/v1/memories/1")


def test_a_body_can_be_no_json(server: StandIn) -> None:
    server.fail(garbage=True, times=1)
    with pytest.raises(json.JSONDecodeError):
        ask(server, "GET", "/v1/memories/1")


def test_a_connection_can_be_dropped(server: StandIn) -> None:
    server.fail(drop=True, times=1)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server, "GET", "/v1/memories/1")


def test_a_delay_ends_when_the_server_is_closed() -> None:
    with StandIn() as server:
        server.route("GET", "/", lambda request: {})
        server.fail(delay=60, times=1)
        connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=30)
        connection.request("GET", "/")
    connection.close()
    assert server.requests == [] or server.requests[0].path == "/"


def test_a_file_and_a_redirect_are_sent_as_they_are() -> None:
    with StandIn() as server:
        server.route("GET", "/file", lambda request: Raw(b"\x00", {"Content-Type": "image/png"}))
        server.route("GET", "/moved", lambda request: (302, Raw(headers={"Location": "/file"})))
        with urllib.request.urlopen(f"{server.url}/moved") as answer:
            assert (answer.read(), answer.headers["Content-Type"]) == (b"\x00", "image/png")


def test_a_request_that_a_killed_client_did_not_finish_is_none() -> None:
    with StandIn() as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port.partition("/")[0]))) as client:
            client.sendall(b'POST /memories HTTP/1.1\r\nContent-Length: 20\r\n\r\n{"text"')
            client.shutdown(socket.SHUT_WR)
            assert client.recv(10) == b""
        assert server.requests == []
