"""The edge: every call on the wire, and what becomes of everything that can go wrong there."""

from __future__ import annotations

import inspect
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from hermes_honcho.client import CONTINUED, Client, Line, _parts, sdk_fault, sdk_version
from honcho.http import exceptions as sdk

from hermes_core.kit import BackendAuthError, BackendNotFound, BackendRefused, BackendUnavailable, poll
from hermes_memory_testing import Raw
from plugins.honcho.tests.stand_in import KEY, HonchoServer

USER, AI = "user", "hermes"
BOTH = {USER: (True, True), AI: (True, True)}
DIRECTIONS = {"observer": AI, "observed": USER}


def connect(server: HonchoServer, key: str | None = KEY, timeout: float = 5.0, hurry: float = 5.0) -> Client:
    return Client(server.url, key, "hermes", timeout, hurry)


@pytest.fixture
def client(server: HonchoServer) -> Iterator[Client]:
    opened = connect(server)
    opened.ensure("talk", BOTH)
    yield opened
    opened.close()


def line(text: str, turn: str = "t1", part: str = "user", peer: str = USER, at: float = 0.0) -> Line:
    return Line(peer, text, turn, part, at)


# ------------------------------------------------------------------- on the wire


def test_a_session_and_its_peers_are_made_by_one_call_and_once(client: Client, server: HonchoServer) -> None:
    client.ensure("talk", BOTH)
    assert [r.path for r in server.requests] == ["/v3/workspaces", "/v3/workspaces/hermes/sessions"]
    assert server.requests[1].json == {
        "id": "talk",
        "peers": {
            USER: {"observe_me": True, "observe_others": True},
            AI: {"observe_me": True, "observe_others": True},
        },
    }
    assert server.requests[0].headers["x-honcho-host"] == "hermes-memory-honcho"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_server_without_keys_is_sent_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HONCHO_API_KEY", raising=False)
    with HonchoServer(key=None) as server:
        client = connect(server, key=None)
        client.ensure("talk", BOTH)
        client.close()
        assert "authorization" not in server.requests[0].headers


def test_messages_carry_their_key_and_their_time(client: Client, server: HonchoServer) -> None:
    client.store("talk", [line("Hello", at=1_700_000_000.0), line("Hi", part="assistant", peer=AI)], 1000)
    first, second = server.the.messages
    assert (first["peer_id"], second["peer_id"]) == (USER, AI)
    assert first["metadata"] == {"turn_id": "t1", "part": "user.0"}
    assert first["created_at"] == "2023-11-14T22:13:20Z"


def test_messages_that_are_there_are_not_sent_again(client: Client, server: HonchoServer) -> None:
    client.store("talk", [line("Hello")], 1000)
    client.store("talk", [line("Hello"), line("Hi", part="assistant", peer=AI)], 1000)
    client.store("talk", [line("Hello"), line("Hi", part="assistant", peer=AI)], 1000)
    assert server.texts() == ["Hello", "Hi"]


def test_a_long_message_is_sent_in_parts_of_25000_characters(client: Client, server: HonchoServer) -> None:
    said = " ".join(f"word{number}" for number in range(9000))
    client.store("talk", [line(said)], 25_000)
    texts = server.texts()
    assert all(len(text) <= 25_000 for text in texts)
    assert [text.startswith(CONTINUED) for text in texts] == [False, True, True, True]
    assert " ".join(text.removeprefix(CONTINUED) for text in texts) == said


def test_more_than_100_messages_are_sent_in_calls_of_100(client: Client, server: HonchoServer) -> None:
    many = [line(f"Remark {n}", turn=f"t{n}") for n in range(230)]
    client.store("talk", many, 1000)
    sizes = [len(r.json["messages"]) for r in server.requests if r.path.endswith("/messages")]
    assert sizes == [100, 100, 30]
    assert server.texts() == [one.text for one in many]


def test_what_broke_off_between_two_calls_goes_on_where_it_was(client: Client, server: HonchoServer) -> None:
    many = [line(f"Remark {n}", turn=f"t{n}") for n in range(150)]
    client.store("talk", many[:100], 1000)
    client.store("talk", many, 1000)
    assert server.texts() == [one.text for one in many]


@pytest.mark.parametrize(
    ("text", "longest", "parts"),
    [
        ("", 100, []),
        (" \n ", 100, []),
        ("half \ud83d and \x00 nul", 100, ["half ? and  nul"]),
        ("One sentence. Another one is here.", 24, ["One sentence.", "[continued] Another one", "[continued] is here."]),
        ("x" * 30, 20, ["x" * 20, "[continued] " + "x" * 8, "[continued] xx"]),
    ],
)  # fmt: skip
def test_a_message_is_cut_where_it_pauses(text: str, longest: int, parts: list[str]) -> None:
    assert [part.text for part in _parts(line(text), longest)] == parts


def test_messages_are_found_that_were_said_in_the_sessions_of_a_peer(
    client: Client, server: HonchoServer
) -> None:
    client.ensure("elsewhere", {"ada": (True, True), AI: (True, True)})
    answer = line("A red boathouse", part="assistant", peer=AI, at=2.0)
    client.store("talk", [line("The boathouse is red", at=1.0), answer], 1000)
    client.store("elsewhere", [line("Another boathouse", turn="t2", peer="ada")], 1000)
    client.store("talk", [line("Rain today", turn="t3")], 1000)
    found = [one.text for one in client.search("which boathouse", 2, seen_by=USER)]
    assert found == ["A red boathouse", "The boathouse is red"]
    assert client.search(" \x00 ", 10, seen_by=USER) == []
    assert client.search("boathouse", 10, seen_by="nobody") == []


def test_of_very_many_sessions_the_newest_are_searched_and_all_that_the_peer_said(
    client: Client, server: HonchoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_honcho.client.MAX_SEARCHED_SESSIONS", 3)
    for number in range(5):
        answer = line(f"Answer {number}", turn=f"t{number}", part="assistant", peer=AI)
        client.store(f"talk{number}", [line(f"Boathouse {number}", turn=f"t{number}"), answer], 1000)
    found = [one.text for one in client.search("boathouse", 20, seen_by=USER)]
    assert {text for text in found if "Boathouse" in text} == {f"Boathouse {n}" for n in range(5)}
    assert "Answer 4" in found
    assert "Answer 0" not in found


def test_turns_that_were_taken_back_are_found_no_more(client: Client, server: HonchoServer) -> None:
    client.store("talk", [line("The boathouse is red"), line("The boathouse is blue", turn="t2")], 1000)
    assert [one.text for one in client.rewind("talk", ["t2"])] == ["The boathouse is blue"]
    assert [one.text for one in client.search("boathouse", 10, seen_by=USER)] == ["The boathouse is red"]
    assert [one.text for one in client.context("talk", AI, USER).recent] == ["The boathouse is red"]
    assert server.the.messages[1]["metadata"] == {"turn_id": "t2", "part": "user.0", "rewound": True}


def test_one_call_tells_summary_image_card_and_last_messages(client: Client, server: HonchoServer) -> None:
    client.store("talk", [line("The boathouse is red")], 1000)
    client.set_card(AI, USER, ["Has a boathouse"])
    server.the.summaries["talk"] = "They talked about boats."
    before = len(server.requests)
    known = client.context("talk", AI, USER, "What colour is the boathouse?", near=0.7, most=9, tokens=400)
    assert len(server.requests) == before + 1
    assert "The boathouse is red" in known.representation
    assert (known.card, known.summary) == (("Has a boathouse",), "They talked about boats.")
    asked = {key: values[0] for key, values in server.requests[-1].query.items()}
    assert asked["search_query"] == "What colour is the boathouse?"
    assert (asked["peer_target"], asked["peer_perspective"], asked["tokens"]) == (USER, AI, "400")
    assert (asked["search_max_distance"], asked["search_top_k"], asked["max_conclusions"]) == (
        "0.7",
        "9",
        "9",
    )


def test_a_peer_may_be_seen_by_itself(client: Client, server: HonchoServer) -> None:
    client.store("talk", [line("The boathouse is red")], 1000)
    assert "boathouse" in client.context("talk", USER, USER).representation
    assert "peer_perspective" not in server.requests[-1].query
    assert "boathouse" in client.view(USER, USER).representation
    assert "target" not in server.requests[-1].query


def test_the_card_is_read_written_and_cleared(client: Client) -> None:
    assert client.card(**DIRECTIONS) == []
    assert client.set_card(**DIRECTIONS, card=["Likes tea\x00", " "]) == ["Likes tea"]
    assert client.card(**DIRECTIONS) == ["Likes tea"]
    assert client.set_card(**DIRECTIONS, card=[]) == []
    assert client.card(**DIRECTIONS) == []


def test_reasoning_is_asked_with_a_level_and_answers_nothing_or_text(
    client: Client, server: HonchoServer
) -> None:
    assert client.ask(AI, USER, "What tea?", "high", session="talk") == ""
    server.answer = lambda query: f"about {query}"
    assert client.ask(USER, USER, "What tea?", "low") == "about What tea?"
    assert server.asked[0] == {
        "peer": AI, "query": "What tea?", "stream": False, "target": USER, "session_id": "talk", "reasoning_level": "high"
    }  # fmt: skip
    assert "target" not in server.asked[1]


def test_a_conclusion_is_kept_once_found_and_deleted(client: Client, server: HonchoServer) -> None:
    (made,) = client.conclude(**DIRECTIONS, texts=["Likes tea", "Likes tea ", " "])
    assert client.conclude(**DIRECTIONS, texts=["Likes tea"]) == []
    assert [one.id for one in client.conclusions(**DIRECTIONS, query="likes")] == [made.id]
    assert not client.drop(USER, USER, made.id)
    assert client.drop(**DIRECTIONS, conclusion=made.id)
    assert not client.drop(**DIRECTIONS, conclusion=made.id)
    assert server.concluded() == []


@pytest.mark.parametrize(
    ("text", "whole", "left"),
    [
        ("Likes green tea\x00", True, ["Has a green boat"]),
        ("green tea", True, ["Likes green tea", "Has a green boat"]),
        ("green tea", False, ["Has a green boat"]),
        ("green", False, ["Likes green tea", "Has a green boat"]),
        ("", False, ["Likes green tea", "Has a green boat"]),
    ],
)
def test_a_conclusion_is_taken_back_by_its_text_or_a_part_that_only_it_has(
    client: Client, server: HonchoServer, text: str, whole: bool, left: list[str]
) -> None:
    client.conclude(**DIRECTIONS, texts=["Likes green tea", "Has a green boat"])
    client.retract(**DIRECTIONS, text=text, whole=whole)
    assert server.concluded() == left


def test_a_conclusion_among_many_is_known_by_its_meaning(client: Client, server: HonchoServer) -> None:
    client.conclude(**DIRECTIONS, texts=["Plays the violin", *(f"Remark number {n}" for n in range(150))])
    assert server.calls("POST", "/conclusions") == 2
    assert client.conclude(**DIRECTIONS, texts=["Plays the violin"]) == []
    assert server.calls("POST", "/conclusions/query") == 1


def test_what_was_concluded_since_a_time_is_listed(client: Client, server: HonchoServer) -> None:
    client.store("talk", [line("The boathouse is red")], 1000)
    server.settle()
    since = datetime.now(UTC)
    client.store("talk", [line("The boathouse is blue", turn="t2")], 1000)
    found = client.concluded_since("talk", since)
    assert {(one.text, one.who, one.about) for one in found} == {
        ("The boathouse is blue", USER, USER),
        ("The boathouse is blue", AI, USER),
    }


def test_files_sessions_peers_and_the_queue(client: Client, server: HonchoServer) -> None:
    assert client.upload("talk", AI, "SOUL.md", "I am calm. " * 3000) == 2
    assert [name for name, _ in client.sessions(5)] == ["talk"]
    assert client.peers(5) == [USER, AI]
    assert client.pending() == 0
    client.delete_session("talk")
    assert client.sessions(5) == []


# ------------------------------------------------------------------- what goes wrong

CALLS: dict[str, Callable[[Client], Any]] = {
    "ensure": lambda c: c.ensure("new", BOTH),
    "configure": lambda c: c.configure("talk", BOTH),
    "sessions": lambda c: c.sessions(5),
    "peers": lambda c: c.peers(5),
    "pending": lambda c: c.pending(),
    "store": lambda c: c.store("talk", [line("Hello")], 1000),
    "rewind": lambda c: c.rewind("talk", ["t1"]),
    "search": lambda c: c.search("tea", 5, seen_by=USER),
    "upload": lambda c: c.upload("talk", AI, "SOUL.md", "calm"),
    "context": lambda c: c.context("talk", AI, USER),
    "view": lambda c: c.view(AI, USER),
    "ask": lambda c: c.ask(AI, USER, "What tea?", "low"),
    "card": lambda c: c.card(AI, USER),
    "set_card": lambda c: c.set_card(AI, USER, ["Likes tea"]),
    "conclude": lambda c: c.conclude(AI, USER, ["Likes tea"]),
    "conclusions": lambda c: c.conclusions(AI, USER),
    "retract": lambda c: c.retract(AI, USER, "Likes tea"),
    "concluded_since": lambda c: c.concluded_since("talk", datetime.now(UTC)),
    "drop": lambda c: c.drop(AI, USER, "id1"),
    "delete_session": lambda c: c.delete_session("talk"),
    "erase": lambda c: c.erase(USER, [AI])[0],
    "erase_image": lambda c: c.erase_image(USER, [AI]),
}


def test_every_call_is_among_those_that_are_tried() -> None:
    own = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert own - {"close"} == CALLS.keys()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"status": 400}, BackendRefused),
        ({"status": 401}, BackendAuthError),
        ({"status": 403}, BackendAuthError),
        ({"status": 404}, BackendNotFound),
        ({"status": 409}, BackendRefused),
        ({"status": 413}, BackendRefused),
        ({"status": 422}, BackendRefused),
        ({"status": 429}, BackendUnavailable),
        ({"status": 500}, BackendUnavailable),
        ({"status": 502}, BackendUnavailable),
        ({"status": 503}, BackendUnavailable),
        ({"status": 307}, BackendUnavailable),
        ({"cut": True}, BackendUnavailable),
        ({"garbage": True}, BackendUnavailable),
        ({"drop": True}, BackendUnavailable),
        ({"delay": 3.0}, BackendUnavailable),
    ],
    ids=str,
)
def test_whatever_goes_wrong_has_its_error_in_every_call(
    server: HonchoServer, fault: dict[str, Any], error: type[Exception]
) -> None:
    client = connect(server, timeout=0.05 if "delay" in fault else 5.0)
    if "delay" not in fault:
        client.ensure("talk", BOTH)
    for name, call in CALLS.items():
        server.heal()
        server.fail(**fault)
        before = len(server.requests)
        if (name, error) == ("view", BackendNotFound):
            assert not call(client)
            continue
        if name == "configure" and not {"cut", "garbage"}.isdisjoint(fault):
            call(client)  # its answer has no body
            continue
        with pytest.raises(error) as raised:
            call(client)
        assert type(raised.value) is error, name
        assert ("is this its address, and" in str(raised.value)) == ("garbage" in fault), name
        assert KEY not in str(raised.value), name
        poll(lambda count=before: len(server.requests) > count, 30, 0.01)  # sent in time, read later
        assert len(server.requests) - before == 1, name
    client.close()


def test_a_redirect_is_not_followed_and_told_with_the_address_that_it_names() -> None:
    with HonchoServer() as server:
        client = connect(server)
        server.route(
            "POST", "/v3/*", lambda request: (301, Raw(headers={"Location": "https://new.example/v3"}))
        )
        with pytest.raises(
            BackendUnavailable, match=r"answered 301: 'https://new.example/v3'; the address has"
        ):
            client.ensure("talk", BOTH)
        client.close()


def test_a_page_that_is_not_found_is_not_told_twice() -> None:
    with HonchoServer() as server:
        client = connect(server)
        server.route("POST", "/v3/*", lambda request: (404, Raw(b"<h1>Not Found</h1>")))
        with pytest.raises(BackendNotFound, match="answered 404; is this its address"):
            client.ensure("talk", BOTH)
        client.close()


@pytest.mark.parametrize(
    "body", [None, [], "text", 7, {}, {"items": [{}]}, [{"id": 1}], {"id": None}], ids=repr
)
def test_json_of_another_form_is_no_answer_of_honcho(body: Any) -> None:
    with HonchoServer() as server:
        client = connect(server)
        client.ensure("talk", BOTH)
        for method in ("GET", "POST", "PUT"):
            server.route(method, "/v3/*", lambda request: body)
        answers = {name: _answer_of(call, client) for name, call in CALLS.items()}
        client.close()
    # What can be read as an answer without content is one; all else is an error, and none is one of ours.
    assert {name for name, answer in answers.items() if answer not in (None, "unreadable", [], "", 0, False)} <= {
        "context", "view"
    }  # fmt: skip


def _answer_of(call: Callable[[Client], Any], client: Client) -> Any:
    try:
        return call(client)
    except BackendUnavailable as exc:
        return "unreadable" if "can't read" in exc.message else exc.message


def test_a_wish_to_be_left_alone_is_passed_on(client: Client, server: HonchoServer) -> None:
    server.fail(status=429, retry_after=7)
    with pytest.raises(BackendUnavailable) as raised:
        client.card(AI, USER)
    assert raised.value.retry_after == 7


def test_a_wrong_key_is_told_with_the_variable_that_holds_it(server: HonchoServer) -> None:
    client = connect(server, key="another")
    with pytest.raises(BackendAuthError, match=r"answered 401: 'Invalid JWT'; check HONCHO_API_KEY"):
        client.ensure("talk", BOTH)
    client.close()


def test_a_refusal_quotes_what_honcho_says() -> None:
    with HonchoServer() as server:
        client = connect(server)
        client.ensure("talk", BOTH)
        with pytest.raises(
            BackendRefused, match=r"body\.messages\.0\.content: String should have at most 25000"
        ):
            client.store("talk", [line("x" * 30_000)], 30_000)
        client.close()


def test_a_server_that_is_not_there_costs_no_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    connect_to, tried = socket.create_connection, []
    monkeypatch.setattr(
        socket, "create_connection", lambda *to, **how: tried.append(to) or connect_to(*to, **how)
    )
    client = Client("http://127.0.0.1:9", KEY, "hermes", 5.0, 5.0)
    with pytest.raises(BackendUnavailable, match="can't be reached"):
        client.peers(1)
    assert len(tried) == 1
    client.close()


def test_what_a_turn_waits_for_has_its_own_short_time(server: HonchoServer) -> None:
    client = connect(server, timeout=5.0, hurry=0.5)
    client.ensure("talk", BOTH)
    server.fail(delay=2.0)
    with pytest.raises(BackendUnavailable, match=r"timed out after 0\.5s"):
        client.context("talk", AI, USER, hurry=True)
    with pytest.raises(BackendUnavailable, match=r"timed out after 0\.5s"):
        client.view(AI, USER, hurry=True)
    client.context("talk", AI, USER)
    with pytest.raises(BackendUnavailable, match=r"timed out after 0\.2s"):
        client.ask(AI, USER, "What tea?", "low", timeout=0.2)
    server.heal()
    server.fail(drip=True)
    with pytest.raises(BackendUnavailable, match=r"timed out after 0\.5s"):
        client.view(AI, USER, hurry=True)
    client.close()


def test_a_session_is_asked_for_again_when_it_may_have_been_deleted(
    client: Client, server: HonchoServer
) -> None:
    client.delete_session("talk")
    server.settle()
    client.ensure("talk", BOTH, again=True)
    assert {peer: one["observe_others"] for peer, one in server.the.members["talk"].items()} == {
        USER: True,
        AI: True,
    }


def test_members_of_a_session_that_is_there_get_the_configuration_of_now(
    client: Client, server: HonchoServer
) -> None:
    later = {USER: (True, False), AI: (False, True)}
    client.ensure("talk", later)
    assert server.the.members["talk"][AI]["observe_me"] is True
    for _ in range(2):
        client.configure("talk", later)
    assert {p: (m["observe_me"], m["observe_others"]) for p, m in server.the.members["talk"].items()} == later
    assert server.calls("PUT", "/config") == 2


# ----------------------------------------------------- what tokenizers do not take

SPECIAL = ("<|endoftext|>", "<|endofprompt|>", "<|fim_prefix|>", "<|fim_suffix|>")


@pytest.mark.parametrize("token", SPECIAL)
def test_a_text_with_a_special_token_arrives_with_the_token_broken(
    client: Client, server: HonchoServer, token: str
) -> None:
    text = f"The tokenizer ends a text with {token} always."
    broken = text.replace("<|", "<| ")
    for _ in range(2):
        client.store("talk", [line("Hello", part="user"), line(text, part="assistant", peer=AI)], 1000)
        client.conclude(**DIRECTIONS, texts=[text])
    assert server.texts() == ["Hello", broken]
    assert [c["content"] for c in server.the.conclusions if c["session_id"] is None] == [broken]
    assert client.upload("talk", AI, "SOUL.md", text) == 1
    assert broken in [one.text for one in client.search(text, 5, seen_by=USER)]
    assert broken in [one.text for one in client.conclusions(**DIRECTIONS, query=text)]
    assert "tokenizer" in client.context("talk", AI, USER, text).representation
    client.ask(AI, USER, text, "low")
    client.retract(**DIRECTIONS, text=text)
    assert [c["content"] for c in server.the.conclusions if c["session_id"] is None] == []


def test_a_text_without_a_special_token_is_sent_once(client: Client, server: HonchoServer) -> None:
    server.fail(status=500)
    before = len(server.requests)
    with pytest.raises(BackendUnavailable):
        client.upload("talk", AI, "SOUL.md", "a <| b |> c")
    assert len(server.requests) == before + 1


@pytest.mark.parametrize(
    "text", ["🚣" * 4000, "字" * 20_000, "word " * 8000], ids=["emoji", "ideographs", "words"]
)
def test_a_text_of_too_many_tokens_is_cut_to_what_embedding_models_take(
    client: Client, server: HonchoServer, text: str
) -> None:
    (made,) = client.conclude(**DIRECTIONS, texts=[text])
    assert len(made.text) > 2000
    assert client.conclude(**DIRECTIONS, texts=[text]) == []
    assert client.conclusions(**DIRECTIONS, query=text) != []
    client.search(text, 5, seen_by=USER)


MADE: dict[str, Callable[[], Exception]] = {
    "HonchoError": lambda: sdk.HonchoError("no"),
    "APIError": lambda: sdk.APIError("no", status=418),
    "RateLimitError": lambda: sdk.RateLimitError("no", retry_after=3.0),
}
ERRORS: dict[str, type[Exception]] = {
    "HonchoError": BackendUnavailable,
    "APIError": BackendRefused,
    "BadRequestError": BackendRefused,
    "AuthenticationError": BackendAuthError,
    "PermissionDeniedError": BackendAuthError,
    "NotFoundError": BackendNotFound,
    "ConflictError": BackendRefused,
    "UnprocessableEntityError": BackendRefused,
    "RateLimitError": BackendUnavailable,
    "ServerError": BackendUnavailable,
    "TimeoutError": BackendUnavailable,
    "ConnectionError": BackendUnavailable,
}


@pytest.mark.parametrize(
    "detail",
    [
        "Peer user not found in workspace w",
        "Peer not found",
        "Peer or session not found",
        "Session not found",
        "Session talk not found in workspace w",
        "Workspace w not found",
        "Collection not found",
        "Resource not found",
    ],
)
def test_what_is_not_there_yet_is_empty_however_honcho_names_it(detail: str) -> None:
    with HonchoServer() as server:
        client = connect(server)
        for method in ("GET", "POST", "PUT"):
            server.route(method, "/v3/*", lambda request: (404, {"detail": detail}))
        assert not client.context("talk", "hermes", "user", "tea")
        assert not client.view("hermes", "user", "tea")
        assert client.ask("hermes", "user", "Which tea?", "low") == ""
        assert client.card("hermes", "user") == []
        assert client.search("tea", 5, seen_by="user") == []
        assert client.conclusions("hermes", "user", "tea") == []
        assert client.conclusions("hermes", "user") == []
        client.close()


def test_a_wrong_address_is_no_empty_honcho() -> None:
    with HonchoServer() as server:
        client = connect(server)
        for method in ("GET", "POST"):
            server.route(method, "/v3/*", lambda request: (404, {"detail": "Not Found"}))
        for call in (CALLS["context"], CALLS["view"], CALLS["ask"], CALLS["card"], CALLS["search"]):
            with pytest.raises(BackendNotFound, match="is this its address"):
                call(client)
        client.close()


def test_every_error_of_the_sdk_has_one_of_ours(client: Client) -> None:
    known = {
        name for name, cls in vars(sdk).items() if inspect.isclass(cls) and issubclass(cls, sdk.HonchoError)
    }
    assert known == ERRORS.keys()
    for name, ours in ERRORS.items():
        error = MADE.get(name, vars(sdk)[name])()
        with pytest.raises(ours) as raised, client._sdk_errors():
            raise error
        assert type(raised.value) is ours, name


def test_every_error_of_httpx_that_the_sdk_lets_through_has_one_of_ours(client: Client) -> None:
    for cls in (httpx.ConnectTimeout, httpx.ReadError, httpx.RemoteProtocolError, httpx.UnsupportedProtocol):
        with pytest.raises(BackendUnavailable), client._sdk_errors():
            raise cls("no")


LOOKED_AT = """
import json, sys
from hermes_honcho import HonchoProvider
provider = HonchoProvider()
provider.is_available()
provider.get_tool_schemas()
print(json.dumps([name for name in ("honcho", "httpx", "pydantic") if name in sys.modules]))
"""


def test_looking_at_the_provider_does_not_import_the_sdk(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOKED_AT],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HERMES_HOME": str(tmp_path)},
    )
    assert json.loads(done.stdout) == []


def test_the_sdk_must_be_new_enough_and_not_of_another_kind() -> None:
    assert sdk_fault(sdk_version()) == ""
    assert sdk_fault("") == "honcho-ai is not installed"
    assert sdk_fault("2.6.9")
    assert sdk_fault("3.0")
    assert sdk_fault("3.0.0rc1")
    assert not sdk_fault("2.7.0")
    assert not sdk_fault("2.12.1")
