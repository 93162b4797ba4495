"""Nobody gets in without a token, a token opens what it is for, and two persons never see each other."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import Any

import httpx
import pytest

from hermes_core import open_memory
from hermes_core.actions.people import forget_person
from hermes_core.kit import redact
from hermes_memory_http.document import openapi_document
from hermes_memory_http.operations import OPERATIONS, Operation
from hermes_memory_http.server import RateLimits
from hermes_memory_http.tokens import TokenStore
from plugins.http.tests.conftest import Serve, Served, new_id, new_token
from plugins.http.tests.test_turns import begin, finish, say
from tests.table import table

SECRET = "the wine is under the stairs"


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve()


def example(operation: Operation, **path: str) -> tuple[str, dict[str, Any]]:
    """Return the path and a body of an operation."""
    bodies: dict[str, dict[str, Any]] = {
        "begin_turn": {"message": "hello", "turn_id": new_id()},
        "add_messages": {"messages": [{"role": "assistant", "content": "a"}], "after": 0},
        "run_tools": {"message": {"role": "assistant", "content": "a"}},
        "finish_turn": {"answer": "no"},
        "recall": {"text": SECRET},
        "change_note": {"action": "add", "content": "Likes tea"},
        "decide": {"decision": "accept", "text": SECRET},
        "forget": {"dry_run": True},
    }
    names = {"conversation": "chat-1", "turn": "a" * 20, "handle": "entry:" + "0" * 16} | path
    return operation.path.format(**names), bodies.get(operation.name, {})


def send(client: httpx.Client, operation: Operation, query: dict[str, str], **path: str) -> httpx.Response:
    place, body = example(operation, **path)
    if operation.name == "search":
        query = {"query": SECRET, **query}
    return client.request(operation.method, place, params=query, json=body if operation.body else None)


@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer x", "Basic eDp5", "Bearer hmt_00000000_" + "0" * 64]
)
def test_without_a_token_nothing_but_the_health_is_answered(served: Served, header: str | None) -> None:
    client = httpx.Client(base_url=served.root, headers={"authorization": header} if header else {})
    with client:
        for operation in OPERATIONS:
            answer = send(client, operation, {})
            assert answer.status_code == 401, operation.name
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "hermes-memory serve token create" in answer.json()["remedy"]
        assert client.get("/openapi.json").status_code == 401
        assert (client.get("/healthz").json(), client.get("/readyz").json()) == (
            {"status": "ok"},
            {"status": "ready"},
        )


@table("operation", OPERATIONS)
def test_each_operation_needs_its_scope(operation: Operation, serve: Serve) -> None:
    served = serve()
    others = {"read": ["write"], "write": ["read"]}.get(operation.scope, ["read", "write"])
    refused = send(served.client("app:ann", *others), operation, {})
    assert refused.status_code == 403
    assert f"--scope {operation.scope}" in refused.json()["remedy"]
    assert send(served.client("app:ann", operation.scope), operation, {}).status_code != 403


@pytest.mark.parametrize("owner", ["app:ann", "app/team", ""])
def test_two_persons_never_see_each_other(served: Served, owner: str) -> None:
    """Bob asks for all that another person has, by every operation, by a token of his own and by a program's."""
    ann = served.client(owner, "read", "write", "review", "forget")
    say(ann, "chat-1", f"Remember: {SECRET}", "Noted.")
    assert ann.post("/v1/notes", json={"action": "add", "content": SECRET}).status_code == 200
    opened = begin(ann, "chat-1", f"Open: {SECRET}")
    bobs = [
        (served.client("app:bob", "read", "write", "review", "forget"), {}),
        (served.client(None, "read", "write", "admin"), {"user": "app:bob"}),
        (served.client("app:team", "read", "write", "review", "forget"), {}),
        (served.client("app/ann", "read", "write", "review", "forget"), {}),
    ]
    for bob, query in bobs:
        for operation in OPERATIONS:
            answer = send(bob, operation, dict(query), turn=opened["id"])
            assert answer.status_code in (200, 403, 404, 409, 422), (operation.name, answer.text)
            if operation.name not in ("decide", "recall"):  # which repeat the question
                assert SECRET not in answer.text, operation.name
            if operation.name == "recall":
                assert SECRET not in str(answer.json()["results"])
    assert finish(ann, opened, "Yes.").status_code == 200
    assert len(ann.get("/v1/conversations/chat-1/messages").json()["messages"]) == 4
    notes = {file["target"]: file["notes"] for file in ann.get("/v1/notes").json()["files"]}
    assert [note["entry"] for note in notes["memory"]] == [SECRET]


def test_a_chat_in_a_turn_opens_nobody_elses_memory(served: Served) -> None:
    """The fields of a chat say where a user speaks, and never who it is."""
    other = served.client("app/other")
    say(other, "chat-1", f"Remember: {SECRET}", "Noted.")
    for user in ("app/team", "", "app/user_name=mel"):
        client = served.client(user)
        for field in ("chat_id", "user_name", "chat_name", "thread_id"):
            body = {"message": SECRET, "turn_id": new_id(), field: "other"}
            answer = client.post("/v1/conversations/chat-1/turns", json=body)
            assert answer.status_code in (200, 422), answer.text
            assert "Remember" not in answer.text
        messages = client.get("/v1/conversations/chat-1/messages")
        assert SECRET not in messages.text
    assert len(other.get("/v1/conversations/chat-1/messages").json()["messages"]) == 2


def test_the_person_at_home_is_listed_nobody_elses_conversations(served: Served) -> None:
    say(served.client("app:ann"), "chat-1", f"Remember: {SECRET}", "Noted.")
    home = served.client("")
    assert home.get("/v1/conversations").json()["conversations"] == []
    assert home.get("/v1/search", params={"query": SECRET}).json()["hits"] == []


def test_a_persons_token_names_that_person_only(served: Served) -> None:
    client = served.client("app:ann")
    assert client.get("/v1/conversations", params={"user": "app:ann"}).status_code == 200
    refused = client.get("/v1/conversations", params={"user": "app:bob"})
    assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")


def test_a_program_has_to_name_a_person(served: Served) -> None:
    client = served.client(None)
    assert client.get("/v1/conversations").status_code == 400
    for wrong in ("ann", "app%3Aann:", "app:", "app/"):
        assert client.get("/v1/conversations", params={"user": wrong}).status_code == 422, wrong
    assert client.get("/v1/conversations", params={"user": "app:änn"}).status_code == 200


def test_only_an_admin_reviews_and_forgets_for_others(served: Served) -> None:
    say(served.client("app:ann"), "chat-1", "Hello", "Hi.")
    query = {"user": "app:ann"}
    program, admin = served.client(None), served.client(None, "admin")
    assert program.get("/v1/review", params=query).status_code == 403
    assert program.post("/v1/forget", params=query, json={}).status_code == 403
    assert admin.get("/v1/review", params=query).status_code == 200
    done = admin.post("/v1/forget", params=query, json={})
    assert done.status_code == 200, done.text
    assert done.json()["complete"]
    assert admin.post("/v1/forget", params=query, json={}).status_code == 422  # nothing is stored of ann
    with open_memory(served.home) as memory:
        assert memory.sessions.list_sessions(user="app:ann") == []


def test_a_revoked_token_is_refused_at_once(served: Served) -> None:
    token = new_token(served.home, "app:ann")
    client = served.with_token(token)
    assert client.get("/v1/conversations").status_code == 200
    with open_memory(served.home, provider="") as memory:
        TokenStore(memory).revoke(token.split("_")[1])
    assert client.get("/v1/conversations").status_code == 401


@pytest.mark.parametrize("said", [True, False])
def test_who_is_forgotten_has_no_token_any_more(served: Served, said: bool) -> None:
    token, other = new_token(served.home, "app:ann"), new_token(served.home, "app:bob")
    if said:
        say(served.with_token(token), "chat-1", "Hello", "Hi.")
    with open_memory(served.home, provider="") as memory:
        forget_person(memory, "app:ann", timeout=0)
        assert [one.user for one in TokenStore(memory).list()] == ["app:bob"]
        rows = memory.sessions.database.execute("SELECT owner, value FROM host_state").fetchall()
    assert served.with_token(token).get("/v1/conversations").status_code == 401
    assert served.with_token(other).get("/v1/conversations").status_code == 200
    assert "app:ann" not in "".join(map(str, map(tuple, rows)))


def test_a_person_who_forgets_themselves_ends_their_token(served: Served) -> None:
    client = served.client("app:ann", "read", "write", "forget")
    say(client, "chat-1", "Hello", "Hi.")
    assert client.post("/v1/forget", json={}).json()["complete"]
    assert client.get("/v1/conversations").status_code == 401


def test_the_public_part_of_a_token_opens_nothing(served: Served) -> None:
    token = new_token(served.home, "app:ann")
    for wrong in (token[:-64] + "0" * 64, token[:-1], token + "0", token.upper()):
        assert served.with_token(wrong).get("/v1/conversations").status_code == 401
    assert served.with_token(token).get("/v1/conversations").status_code == 200


def test_the_home_has_no_token_in_clear_text(served: Served) -> None:
    token = new_token(served.home, "app:ann")
    served.with_token(token).get("/v1/conversations/none")
    secret = token.rpartition("_")[2].encode()
    files = [path for path in served.home.path.rglob("*") if path.is_file()]
    assert [path.name for path in files if secret in path.read_bytes()] == []
    assert redact(f"it is {token}.") == "it is [redacted:hermes]."


def raw(served: Served, headers: dict[str, str], path: str = "/healthz") -> tuple[int, dict[str, Any]]:
    """Send a request with exactly these headers."""
    host, _, port = served.root.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    status, text = response.status, response.read().decode()
    connection.close()
    return status, json.loads(text) if text.startswith("{") else {}


def test_another_name_of_this_machine_is_refused(served: Served) -> None:
    """DNS rebinding: a page of another site points its own name at 127.0.0.1."""
    port = int(served.root.rpartition(":")[2])
    for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port - 1}", ""):
        status, problem = raw(served, {"Host": host})
        assert status in (400, 421), host
        assert status == 400 or "--allow-host" in problem["remedy"]
    assert raw(served, {"Host": f"LOCALHOST:{port}"})[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1"])
def test_a_page_of_another_site_is_refused(served: Served, origin: str) -> None:
    client = served.client("app:ann")
    assert client.get("/v1/conversations", headers={"origin": origin}).status_code == 403
    assert client.get("/v1/conversations", headers={"origin": served.root}).status_code == 200


def test_a_request_that_is_too_large_or_no_json_is_refused(serve: Serve) -> None:
    served = serve(body=10_000)
    client = served.client("app:ann")
    path = "/v1/conversations/chat-1/turns"
    opened = begin(client, "chat-1")
    json_type = {"content-type": "application/json"}
    deep = b'{"turn_id":"' + b"a" * 20 + b'","message":' + b'{"a":' * 4000
    for body, headers, status in (
        (b"x" * 10_001, json_type, 413),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", json_type, 422),
        (b"{", json_type, 400),
        (b'{"message": "\xff"}', json_type, 400),
        (b'{"message": "hi", "turn_id": "short"}', json_type, 422),
        (b'{"message": "hi", "turn_id": "aaaaaaaaaaaaaaaaaaaa", "unknown": 1}', json_type, 422),
        (deep[:9000], json_type, 400),
        (b'{"turn_id":"' + b"a" * 20 + b'","message":' + b'{"a":' * 900 + b"1" + b"}" * 901, json_type, 422),
    ):
        answer = client.post(path, content=body, headers=headers)
        assert (answer.status_code, body[:60]) == (status, body[:60]), answer.text
        assert answer.json()["remedy"]
    stream = client.post(f"{path}/{opened['id']}/stream", content=b"x" * 10_001)
    assert "413" in stream.text
    assert client.get("/v1/conversations/%FF").status_code == 400


def test_a_value_that_is_nested_without_end_is_refused(serve: Serve) -> None:
    client = serve(body=1_000_000).client("app:ann")
    native = b"[" * 400_000 + b"]" * 400_000  # the depth that can be read depends on the stack of the process
    body = b'{"message":"a","turn_id":"' + b"a" * 20 + b'","native":' + native + b"}"
    answer = client.post(
        "/v1/conversations/chat-1/turns", content=body, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, bool(answer.json()["remedy"])) == (400, True)


def test_a_person_has_a_few_open_turns_at_a_time(serve: Serve) -> None:
    served = serve(open_turns=2)
    client = served.client("app:ann")
    first = {"message": "hello", "turn_id": new_id()}
    assert client.post("/v1/conversations/a/turns", json=first).status_code == 200
    opened = begin(client, "b")
    refused = client.post("/v1/conversations/c/turns", json={"message": "hello", "turn_id": new_id()})
    assert refused.status_code == 429
    assert "finish or cancel" in refused.json()["remedy"]
    assert client.post("/v1/conversations/a/turns", json=first).status_code == 200  # it is open already
    assert (
        served.client("app:bob")
        .post("/v1/conversations/c/turns", json=first | {"turn_id": new_id()})
        .status_code
        == 200
    )
    assert finish(client, opened).status_code == 200
    begin(client, "c")


def test_a_token_that_sends_too_much_has_to_wait(serve: Serve) -> None:
    served = serve(rate=0.2)  # two at once
    client = served.client("app:ann")
    answers = [client.get("/v1/conversations") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 5
    assert served.client("app:ann").get("/v1/conversations").status_code == 200
    rates, now = RateLimits(0.2), time.monotonic()
    assert [rates.take("a", now + at) for at in (0, 0, 0, 5.0)] == [0.0, 0.0, 5.0, 0.0]


def test_a_fault_of_ours_is_a_problem_without_its_text(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError(SECRET)

    client = served.client("app:ann")
    monkeypatch.setattr("hermes_core.sessions.session_store.SessionStore.list_sessions", fail)
    answer = client.get("/v1/conversations")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert SECRET not in answer.text
    served.closing.close()  # the server logs after it has answered
    assert "ZeroDivisionError" in caplog.text


def test_a_client_that_goes_away_within_its_request_is_no_fault(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    token, address = new_token(served.home, "app:ann"), served.root.removeprefix("http://")
    host, _, port = address.partition(":")
    head = f"POST /v1/recall HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n".encode())
        connection.sendall(b'Expect: 100-continue\r\n\r\n{"text": ')
        assert b"100 Continue" in connection.recv(1000)  # the server reads the body
    served.closing.close()
    assert "Exception in ASGI application" not in caplog.text


def test_a_store_that_can_not_be_used_is_not_ready(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_core.errors import DatabaseUnavailable

    client = served.client("app:ann")

    def fail(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("postgresql://app:hunter22@db/x does not answer", "start it")

    monkeypatch.setattr("hermes_core.storage.sqlite.Database.execute", fail)
    ready = httpx.get(f"{served.root}/readyz")
    assert ready.status_code == 503
    assert "db" not in ready.text
    assert httpx.get(f"{served.root}/healthz").status_code == 200
    failed = client.get("/v1/conversations")
    assert (failed.status_code, failed.json()["remedy"]) == (503, "start it")
    assert "hunter22" not in failed.text
    assert failed.headers["retry-after"]


def test_the_head_of_an_answer_is_its_answer_without_a_body(served: Served) -> None:
    answer = served.client("app:ann", "read").head("/v1/notes")
    assert (answer.status_code, answer.headers["content-type"], answer.content) == (
        200,
        "application/json",
        b"",
    )


def test_a_path_with_a_slash_at_its_end_is_another_path(served: Served) -> None:
    answer = served.client("app:ann").get("/v1/notes/")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_the_document_says_that_a_turn_may_not_be_open(served: Served) -> None:
    document = served.client("app:ann").get("/openapi.json").json()
    of_turns = [one for one in OPERATIONS if "{turn}" in one.path]
    assert all("409" in document["paths"][one.path][one.method.lower()]["responses"] for one in of_turns)


def test_the_document_names_every_operation(served: Served) -> None:
    document = served.client("app:ann").get("/openapi.json").json()
    assert document == json.loads(json.dumps(openapi_document()))
    names = {one["operationId"] for path in document["paths"].values() for one in path.values()}
    assert names == {one.name for one in OPERATIONS} | {"get_health", "get_readiness", "get_document"}
    assert all(one.summary.endswith(".") for one in OPERATIONS)
