"""A turn over HTTP is the turn of the Python API."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from hermes_core import open_memory
from hermes_core.sessions.open_turns import OpenTurnStore
from hermes_core.sessions.records import StoredOpenTurn
from plugins.http.tests.conftest import Serve, Served, new_id

ANN = {"user": "app:ann"}


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve()


def begin(
    client: httpx.Client, chat: str, message: Any = "Where do we deploy?", **more: Any
) -> dict[str, Any]:
    body = {"message": message, "turn_id": new_id()} | more
    answer = client.post(f"/v1/conversations/{chat}/turns", json=body)
    assert answer.status_code == 200, answer.text
    opened: dict[str, Any] = answer.json()
    return opened


def finish(client: httpx.Client, opened: dict[str, Any], answer: Any = "To Frankfurt.") -> httpx.Response:
    return client.post(
        f"/v1/conversations/{opened['conversation']}/turns/{opened['id']}/finish", json={"answer": answer}
    )


def say(client: httpx.Client, chat: str, message: str, answer: str) -> dict[str, Any]:
    done = finish(client, begin(client, chat, message), answer)
    assert done.status_code == 200, done.text
    turn: dict[str, Any] = done.json()
    return turn


def test_a_turn_is_stored_as_the_python_api_stores_it(served: Served) -> None:
    client = served.client("app:ann")
    opened = begin(client, "chat-1", "We deploy billing to Frankfurt.", title="Deployments", author="Ann")
    assert opened["messages"][-1]["content"] == "We deploy billing to Frankfurt."
    assert {tool["function"]["name"] for tool in opened["tools"]} == {"memory", "session_search"}
    finished = finish(client, opened, "Noted.").json()
    assert (finished["number"], finished["user"], finished["assistant"]) == (
        1,
        "We deploy billing to Frankfurt.",
        "Noted.",
    )
    with open_memory(served.home) as memory:
        chat = memory.conversation("chat-1", platform="app", user_id="ann")
        assert [(m.role, m.content) for m in chat.history()] == [
            ("user", "We deploy billing to Frankfurt."),
            ("assistant", "Noted."),
        ]
    hits = client.get("/v1/search", params={"query": "where is billing deployed"}).json()["hits"]
    assert hits[0]["text"] == "We deploy billing to Frankfurt."
    again = begin(client, "chat-2", "Where do we deploy billing?")
    assert "Frankfurt" in again["context"]
    assert "Frankfurt" in str(again["messages"][-1]["content"])


def test_each_write_may_be_repeated(served: Served) -> None:
    client = served.client("app:ann")
    body = {"message": "Hello", "turn_id": new_id()}
    path = "/v1/conversations/chat-1/turns"
    first, second = client.post(path, json=body).json(), client.post(path, json=body).json()
    assert first == second
    more = {"messages": [{"role": "assistant", "content": "Let me look."}], "after": 0}
    turn = f"{path}/{body['turn_id']}"
    added = [client.post(f"{turn}/messages", json=more).json() for _ in range(2)]
    assert added == [{"added": 1}] * 2
    call = {"id": "c1", "type": "function", "function": {"name": "memory", "arguments": '{"action":"add"'}}
    call["function"] = {
        "name": "memory",
        "arguments": json.dumps({"action": "add", "target": "user", "content": "Likes tea"}),
    }
    other = {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    asked = {"message": {"role": "assistant", "content": None, "tool_calls": [call, other]}}
    ran = [client.post(f"{turn}/tools", json=asked).json() for _ in range(2)]
    assert ran[0] == ran[1]
    assert [(result["call_id"], result["ok"]) for result in ran[0]["results"]] == [("c1", True)]
    assert [made["id"] for made in ran[0]["others"]] == ["c2"]
    finished = [client.post(f"{turn}/finish", json={"answer": "Done."}) for _ in range(2)]
    assert [one.status_code for one in finished] == [200, 200]
    assert finished[0].json() == finished[1].json()
    assert finished[0].json()["number"] == 1
    other_answer = client.post(f"{turn}/finish", json={"answer": "Something else."})
    assert (other_answer.status_code, other_answer.json()["status"]) == (409, 409)
    assert client.post(f"{turn}/cancel").status_code == 409
    messages = client.get("/v1/conversations/chat-1/messages").json()["messages"]
    assert [m["role"] for m in messages] == ["user", "assistant", "assistant", "tool", "assistant"]
    for path in ("end", "end"):
        assert client.post(f"/v1/conversations/chat-1/{path}").status_code == 200


def test_a_turn_that_another_process_stores_meanwhile_is_returned(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, stored = OpenTurnStore.create, []

    def create_late(self: OpenTurnStore, turn: StoredOpenTurn, *, at: float) -> None:
        if not stored:
            stored.append(turn.id)
            create(self, turn, at=at - 1)
        create(self, turn, at=at)

    monkeypatch.setattr(OpenTurnStore, "create", create_late)
    opened = begin(served.client("app:ann"), "chat-1", "We deploy to Frankfurt.")
    assert [opened["id"]] == stored
    assert finish(served.client("app:ann"), opened).status_code == 200


def test_the_id_of_an_open_turn_with_another_message_is_refused(served: Served) -> None:
    client = served.client("app:ann")
    opened = begin(client, "chat-1", "We deploy to Frankfurt.")
    again = {"message": "We deploy to Dublin.", "turn_id": opened["id"]}
    refused = client.post("/v1/conversations/chat-1/turns", json=again)
    assert (refused.status_code, refused.json()["title"]) == (409, "Conflict")
    assert finish(client, opened).json()["user"] == "We deploy to Frankfurt."


def test_an_answer_that_the_store_writes_otherwise_is_the_same_answer(served: Served) -> None:
    client = served.client("app:ann")
    opened = begin(client, "chat-1", "What is in \0 the file?")
    assert begin(client, "chat-1", "What is in \0 the file?", turn_id=opened["id"]) == opened
    answers = [finish(client, opened, "Only \0 bytes.") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "tool_call_id": ["c1"], "content": "x"},
        {"role": "tool", "tool_call_id": {"id": "c1"}, "name": ["memory"], "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": ["c1"], "function": 5}], "name": {"first": "Ann"}},
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": ["x"], "arguments": 5}}]},
    ],
    ids=["id", "ids and names", "call", "function"],
)
def test_a_message_of_a_strange_shape_does_not_keep_its_turn_from_its_end(
    served: Served, message: dict[str, Any]
) -> None:
    client = served.client("app:ann")
    opened = begin(client, "chat-1")
    turn = f"/v1/conversations/chat-1/turns/{opened['id']}"
    added = client.post(f"{turn}/messages", json={"messages": [message], "after": 0})
    assert added.status_code in (200, 422), added.text
    call = {"id": "c9", "type": "function", "function": {"name": "session_search", "arguments": "[]"}}
    asked = {"message": {"role": "assistant", "tool_calls": [call]}}
    assert client.post(f"{turn}/tools", json=asked).status_code == 200
    assert finish(client, opened).status_code == 200


def test_a_message_after_another_number_of_messages_is_refused(served: Served) -> None:
    client = served.client("app:ann")
    opened = begin(client, "chat-1")
    turn = f"/v1/conversations/chat-1/turns/{opened['id']}"
    one = {"messages": [{"role": "assistant", "content": "a"}], "after": 0}
    assert client.post(f"{turn}/messages", json=one).json() == {"added": 1}
    for other in ({"messages": [{"role": "assistant", "content": "b"}], "after": 0}, {**one, "after": 2}):
        refused = client.post(f"{turn}/messages", json=other)
        assert refused.status_code == 409
        assert "get the turn" in refused.json()["remedy"]
    assert client.get(turn).json()["added"] == 1


def test_a_cancelled_turn_leaves_nothing(served: Served) -> None:
    client = served.client("app:ann")
    opened = begin(client, "chat-1")
    turn = f"/v1/conversations/chat-1/turns/{opened['id']}"
    assert [client.post(f"{turn}/cancel").status_code for _ in range(2)] == [200, 200]
    assert client.get(turn).status_code == 404
    assert finish(client, opened).status_code == 404
    assert client.get("/v1/conversations/chat-1/messages").json()["messages"] == []


def test_a_group_is_given_once_and_stays_with_the_conversation(served: Served) -> None:
    client = served.client(None)
    opened = client.post(
        "/v1/conversations/g/turns",
        params=ANN,
        json={"message": "hello", "turn_id": new_id(), "chat_id": "team", "chat_type": "group"},
    ).json()
    path = f"/v1/conversations/g/turns/{opened['id']}/finish"
    assert client.post(path, params=ANN, json={"answer": "Hi."}).status_code == 200
    with open_memory(served.home) as memory:
        assert memory.sessions.meta.identity("g")["chat_id"] == "team"
        assert memory.sessions.meta.identity("g")["user_id"] == "ann"


def test_the_request_comes_in_the_form_of_the_models_api(served: Served) -> None:
    opened = begin(served.client("app:ann"), "chat-1", "hello", form="anthropic")
    assert opened["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    assert "input_schema" in opened["tools"][0]


def events(text: str) -> list[tuple[str, Any]]:
    blocks = [
        dict(line.split(": ", 1) for line in block.splitlines()) for block in text.split("\n\n") if block
    ]
    return [(block["event"], json.loads(block["data"])) for block in blocks]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_recall_that_a_stream_repeats_reaches_nobody(served: Served, size: int) -> None:
    client = served.client("app:ann")
    say(client, "chat-1", "We deploy billing to Frankfurt.", "Noted.")
    opened = begin(client, "chat-2", "Where do we deploy billing?")
    assert opened["context"]
    answer = f"It is ü: {opened['context']}\nTo Frankfurt."
    body = answer.encode()
    streamed = client.post(
        f"/v1/conversations/chat-2/turns/{opened['id']}/stream",
        params={"finish": "true"},
        content=(body[at : at + size] for at in range(0, len(body), size)),
        headers={"content-type": "text/plain"},
    )
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *pieces, (last, finished) = events(streamed.text)
    assert last == "finished"
    shown = "".join(data["text"] for _, data in pieces)
    assert "<memory-context>" not in shown
    assert shown.split() == ["It", "is", "ü:", "To", "Frankfurt."]
    assert finished["assistant"].split() == shown.split()


def test_a_stream_that_breaks_off_leaves_the_turn_open(served: Served) -> None:
    client = served.client("app:ann")
    opened = begin(client, "chat-1")
    path = f"/v1/conversations/chat-1/turns/{opened['id']}"

    def broken() -> Any:
        yield b"To Fra"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        client.post(f"{path}/stream", params={"finish": "true"}, content=broken())
    assert client.get(path).status_code == 200
    assert finish(client, opened).status_code == 200


def test_an_answer_that_is_no_text_ends_the_stream_with_a_problem(served: Served) -> None:
    client = served.client("app:ann")
    opened = begin(client, "chat-1")
    path = f"/v1/conversations/chat-1/turns/{opened['id']}"
    streamed = client.post(f"{path}/stream", content=b"ab\xff\xfe")
    assert events(streamed.text)[-1][0] == "problem"
    assert client.get(path).status_code == 200
