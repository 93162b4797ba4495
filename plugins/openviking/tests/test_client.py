"""Every call of the API against both versions, and what each way of going wrong becomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hermes_openviking.client import AlreadyThere, Client, ServerFault, _error_of_status
from hermes_openviking.settings import Server
from hermes_openviking.spaces import Space

from hermes_core.kit import BackendAuthError, BackendNotFound, BackendRefused, BackendUnavailable
from plugins.openviking.tests.conftest import SPACE, connected
from plugins.openviking.tests.stand_in import ROOT_KEY, Viking

TEA = f"{SPACE.memories}/preferences/tea.md"


def said(text: str, turn: str = "t1", at: str = "2026-11-22T03:00:00+00:00") -> list[dict[str, Any]]:
    """A turn of two messages."""
    who = {"peer_id": SPACE.peer, "turn_id": turn, "created_at": at}
    parts = [{"type": "text", "text": text}]
    return [{"role": "user", "parts": parts, **who}, {"role": "assistant", "parts": parts, **who}]


# ---------------------------------------------------------------- who we are


@pytest.mark.parametrize(
    ("mode", "key", "user"),
    [("dev", "", "default"), ("trusted", ROOT_KEY, "default"), ("api_key", "key-of-alice", "alice")],
)
def test_in_each_mode_the_server_says_which_user_we_are(mode: str, key: str, user: str) -> None:
    with Viking(mode=mode) as server:
        client = connected(server, key=key)
        assert (client.version, client.mode, client.user) == ("0.5.2", mode, user)
        sent = server.requests[-1].headers
        assert sent.get("authorization") == (f"Bearer {key}" if key else None)
        assert (sent["x-openviking-account"], sent["x-openviking-user"]) == ("default", "default")
        client.close()


@pytest.mark.parametrize(
    ("mode", "key"), [("api_key", "wrong"), ("api_key", ""), ("api_key", ROOT_KEY), ("trusted", "")]
)
def test_a_key_that_does_not_fit_is_an_auth_error_that_names_its_variable(mode: str, key: str) -> None:
    with Viking(mode=mode) as server:
        client = Client(Server(server.url, key, "default", "default", ""), 5.0)
        client.user = "alice"
        with pytest.raises(BackendAuthError, match="OPENVIKING_API_KEY"):
            client.find(SPACE, "tea", [SPACE.memories], 1)
        client.close()


def test_without_account_and_user_a_trusting_server_says_what_it_needs() -> None:
    with Viking(mode="trusted") as server:
        client = Client(Server(server.url, ROOT_KEY, "", "", ""), 5.0)
        with pytest.raises(BackendAuthError, match="set account and user"):
            client.connect()
        client.close()


@pytest.mark.parametrize("health", [{"status": "error", "healthy": False}, ["well"], None])
def test_a_server_that_is_not_well_is_unavailable(health: Any) -> None:
    with Viking() as server:
        server.route("GET", "/health", lambda request: health)
        with pytest.raises(BackendUnavailable):
            connected(server)


def test_a_server_that_does_not_know_us_is_unavailable(today: Viking) -> None:
    today.route(
        "GET", "/api/v1/system/status", lambda request: {"status": "ok", "result": {"initialized": False}}
    )
    with pytest.raises(BackendUnavailable, match="who we are"):
        connected(today)


# -------------------------------------------------------------------- memory


def test_a_memory_is_written_found_read_and_forgotten(client: Client, server: Viking) -> None:
    client.put(SPACE, TEA, "Likes oolong tea.", wait=True)
    client.put(SPACE, TEA, "Likes oolong tea.")
    (hit,) = client.find(SPACE, "Which tea?", [SPACE.memories], 5)
    assert (hit.uri, hit.text, hit.kind, hit.category) == (TEA, "Likes oolong tea.", "memory", "preferences")
    assert client.read(SPACE, TEA) == "Likes oolong tea."
    assert client.stat(SPACE, TEA)["isDir"] is False
    client.forget(SPACE, TEA)
    client.forget(SPACE, TEA, wait=True)
    assert client.find(SPACE, "Which tea?", [SPACE.memories], 5) == []
    with pytest.raises(BackendNotFound):
        client.read(SPACE, TEA)


def test_the_floor_is_a_cosine_on_every_scale(client: Client, server: Viking) -> None:
    client.put(SPACE, TEA, "tea milk sugar lemon")
    uri = TEA.replace("tea", "mountain")
    client.put(SPACE, uri, "a mountain")
    assert {hit.uri for hit in client.find(SPACE, "tea", [SPACE.memories], 5, floor=0.49)} == {TEA}
    assert client.find(SPACE, "tea", [SPACE.memories], 5, floor=0.51) == []


@pytest.mark.parametrize(
    ("version", "floor"), [("0.4.21", 0.2), ("0.4.22", 0.6), ("0.5.2", 0.6), ("dev", 0.6), ("v1.0", 0.6)]
)
def test_the_scale_changed_with_version_0_4_22(today: Viking, version: str, floor: float) -> None:
    client = connected(today)
    client.version = version
    client.find(SPACE, "tea", [SPACE.memories], 5, floor=0.2)
    assert today.requests[-1].json["score_threshold"] == pytest.approx(floor)
    client.close()


def test_what_lies_elsewhere_and_the_listings_of_folders_are_not_found(
    client: Client, server: Viking
) -> None:
    server.files["viking://user/default/peers/other/memories/events/tea.md"] = "tea"
    client.put(SPACE, TEA, "tea")
    hits = client.find(SPACE, "tea", [SPACE.memories], 5)
    assert [hit.uri for hit in hits] == [TEA]


def test_a_search_in_the_light_of_a_conversation_names_it(client: Client, server: Viking) -> None:
    client.put(SPACE, TEA, "tea")
    assert client.find(SPACE, "tea", [SPACE.memories], 5, conversation="hermes.s1")
    asked = server.requests[-1]
    assert (asked.path, asked.json["session_id"]) == ("/api/v1/search/search", "hermes.s1")


def test_the_servers_own_choice_is_taken_without_what_is_another_peers(today: Viking) -> None:
    client = connected(today)
    client.put(SPACE, TEA, "tea")
    client.put(SPACE, f"{SPACE.resources}/tea/tea.md", "tea")
    today.files["viking://user/default/peers/other/memories/events/tea.md"] = "tea"
    today.files[f"{SPACE.memories}/preferences/.overview.md"] = "tea"
    assert client.has_context
    hits = client.context(SPACE, "tea", [SPACE.memories, SPACE.resources], 5, floor=0.2, tokens=40, timeout=3)
    assert {(hit.uri, hit.kind, hit.ready) for hit in hits} == {
        (TEA, "memory", True),
        (f"{SPACE.resources}/tea/tea.md", "resource", True),
    }
    asked = today.requests[-1].json
    assert (asked["max_tokens"], asked["rewrite"], asked["query_expansion"]) == (64, "off", "off")
    assert asked["peer_scope"] == "actor"
    client.close()


def test_words_are_found_without_an_embedder_by_the_share_that_fits(client: Client, server: Viking) -> None:
    server.embeds = False
    client.put(SPACE, TEA, "The tea is in the tin.\nThe TIN is red (+49?).")
    client.put(SPACE, TEA.replace("tea", "tin"), "A tin.")
    server.files[f"{SPACE.memories}/preferences/.overview.md"] = "tea tin"
    with pytest.raises(ServerFault):
        client.find(SPACE, "tea", [SPACE.memories], 5)
    hits = client.find_words(SPACE, {"tea", "tin", "(+49?)"}, [SPACE.memories, SPACE.resources], 5)
    assert [(hit.uri, hit.score, hit.kind) for hit in hits] == [(TEA, 1.0, "memory")]
    assert hits[0].text == "The tea is in the tin.\nThe TIN is red (+49?)."
    assert client.find_words(SPACE, set(), [SPACE.memories], 5) == []


# ---------------------------------------------------------------------- tree


def test_folders_are_listed_and_summarised(client: Client) -> None:
    client.put(SPACE, TEA, "tea")
    assert [row["uri"] for row in client.entries(SPACE, SPACE.memories, False, 9)] == [
        f"{SPACE.memories}/preferences"
    ]
    assert [row["uri"] for row in client.entries(SPACE, SPACE.memories, True, 9)][-1] == TEA
    assert len(client.entries(SPACE, SPACE.memories, True, 1)) == 1
    assert client.read(SPACE, SPACE.memories, "overview") == f"Overview of {SPACE.memories}"
    assert client.read(SPACE, SPACE.memories, "abstract") == f"Abstract of {SPACE.memories}"
    with pytest.raises(BackendRefused):
        client.read(SPACE, SPACE.memories)


def test_a_document_is_handed_over_added_and_followed(client: Client, server: Viking) -> None:
    file = client.upload(SPACE, "pump.md", b"# Pump")
    added = client.add(SPACE, {"temp_file_id": file, "source_name": "pump.md", "parent": SPACE.resources})
    assert b"# Pump" in server.uploads[0]
    assert added["root_uri"] == f"{SPACE.resources}/pump"
    assert client.follow(SPACE, added["task_id"], 1.0)["status"] == "completed"


def test_an_address_that_the_server_may_not_fetch_is_refused_and_no_matter_of_keys(client: Client) -> None:
    with pytest.raises(BackendRefused, match="public remote"):
        client.add(SPACE, {"path": "http://127.0.0.1:9/x", "parent": SPACE.resources})


# ------------------------------------------------------------------ sessions


def test_a_turn_is_added_once_also_after_it_was_archived(client: Client, server: Viking) -> None:
    for _ in range(2):
        client.add_turn(SPACE, "hermes.s1", said("I like jazz."))
    client.commit(SPACE, "hermes.s1")
    client.add_turn(SPACE, "hermes.s1", said("I like jazz."))
    assert len(server.messages) == 2
    assert server.sessions["hermes.s1"]["policy"] == {"self": {"enabled": False}, "peer": {"enabled": True}}


def test_another_turn_of_the_same_second_or_the_same_words_is_another(client: Client, server: Viking) -> None:
    client.add_turn(SPACE, "hermes.s1", said("I like jazz.", "t1"))
    client.add_turn(SPACE, "hermes.s1", said("I like rum.", "t2"))
    client.add_turn(SPACE, "hermes.s1", said("I like jazz.", "t3", at="2026-11-22T03:00:01+00:00"))
    assert len(server.messages) == 6


def test_a_turn_that_is_only_mentioned_is_not_taken_for_sent(client: Client, server: Viking) -> None:
    client.add_turn(
        SPACE, "hermes.s1", said('What is turn t2, "turn_id": "t2"?', "t1", at="2026-01-01T00:00:00+00:00")
    )
    client.add_turn(SPACE, "hermes.s1", said("It is this.", "t2"))
    assert len(server.messages) == 4


def test_a_commit_is_followed_and_a_second_has_nothing_to_do(client: Client, server: Viking) -> None:
    assert client.commit(SPACE, "hermes.unknown") == ""
    client.add_turn(SPACE, "hermes.s1", said("I like jazz."))
    task = client.commit(SPACE, "hermes.s1")
    assert client.commit(SPACE, "hermes.s1") == ""
    assert client.task(SPACE, task)["status"] == "pending"
    assert client.follow(SPACE, task, 5.0)["status"] == "completed"
    assert client.find(SPACE, "jazz", [SPACE.memories], 5)[0].text == "I like jazz."
    assert client.task(SPACE, "task-99")["status"] == "unknown"


def test_what_the_server_failed_to_learn_is_known_for_our_sessions_only(
    client: Client, server: Viking
) -> None:
    server.learns = False
    client.add_turn(SPACE, "hermes.s1", said("I like jazz."))
    client.follow(SPACE, client.commit(SPACE, "hermes.s1"), 5.0)
    client.add_turn(SPACE, "hermes-other.s1", said("I like rum."))
    client.commit(SPACE, "hermes-other.s1")
    (task,) = client.extractions(SPACE)
    assert (task["status"], task["error"], task["resource_id"]) == (
        "failed",
        "the model answered junk",
        "hermes.s1",
    )


def test_turns_are_taken_back_and_the_rest_stays_in_order(today: Viking) -> None:
    client = connected(today)
    for number in range(70):
        client.add_turn(SPACE, "hermes.s1", said(f"Remark {number}.", f"t{number}"))
    client.take_back(SPACE, "hermes.s1", ("t68", "t69"))
    client.take_back(SPACE, "hermes.s1", ("t68", "t69"))
    assert list(today.sessions) == ["hermes.s1"]
    assert [m["turn_id"] for m in today.messages] == [f"t{n}" for n in range(68) for _ in (0, 1)]
    client.take_back(SPACE, "hermes.s1", [f"t{n}" for n in range(68)])
    assert today.messages == []
    client.close()


@pytest.mark.parametrize("cut_at", ["/sessions", "/messages/batch", "/sessions/hermes.s1.rewound"])
def test_taking_back_goes_on_where_it_was_cut(today: Viking, cut_at: str) -> None:
    """The server does what it is asked and the answer is lost, at each step; then it all comes again."""
    client = connected(today)
    for number in range(3):
        client.add_turn(SPACE, "hermes.s1", said(f"Remark {number}.", f"t{number}"))
    today.losing = cut_at
    with pytest.raises(BackendUnavailable):
        client.take_back(SPACE, "hermes.s1", ("t2",))
    today.losing = ""
    client.take_back(SPACE, "hermes.s1", ("t2",))
    assert [m["turn_id"] for m in today.messages] == ["t0", "t0", "t1", "t1"]
    assert list(today.sessions) == ["hermes.s1"]
    client.close()


# --------------------------------------------------------------- going wrong

CALLS: dict[str, Callable[[Client], Any]] = {
    "connect": lambda c: c.connect(),
    "put": lambda c: c.put(SPACE, TEA, "tea"),
    "forget": lambda c: c.forget(SPACE, TEA),
    "find": lambda c: c.find(SPACE, "tea", [SPACE.memories], 5),
    "context": lambda c: c.context(SPACE, "tea", [SPACE.memories], 5, floor=0, tokens=99),
    "find_words": lambda c: c.find_words(SPACE, {"tea"}, [SPACE.memories], 5),
    "grep": lambda c: c.grep(SPACE, SPACE.memories, "tea"),
    "stat": lambda c: c.stat(SPACE, TEA),
    "entries": lambda c: c.entries(SPACE, SPACE.memories, True, 9),
    "read": lambda c: c.read(SPACE, TEA),
    "upload": lambda c: c.upload(SPACE, "a.md", b"a"),
    "add": lambda c: c.add(SPACE, {"path": "https://example.com/a", "parent": SPACE.resources}),
    "add_turn": lambda c: c.add_turn(SPACE, "hermes.s1", said("tea", "t2")),
    "commit": lambda c: c.commit(SPACE, "hermes.s1"),
    "take_back": lambda c: c.take_back(SPACE, "hermes.s1", ("t1",)),
    "task": lambda c: c.task(SPACE, "task-0"),
    "extractions": lambda c: c.extractions(SPACE),
}

FAULTS: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "no answer": ({"drop": True}, BackendUnavailable),
    "cut body": ({"cut": True}, BackendUnavailable),
    "no JSON": ({"garbage": True}, BackendUnavailable),
    "401": ({"status": 401}, BackendAuthError),
    "429": ({"status": 429, "retry_after": 7}, BackendUnavailable),
    "500": ({"status": 500}, ServerFault),
    "503": ({"status": 503}, BackendUnavailable),
    "504": ({"status": 504}, BackendUnavailable),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_call_says_what_went_wrong_in_the_hosts_words(today: Viking, call: str) -> None:
    client = connected(today)
    for what, (fault, error) in FAULTS.items():
        today.files[TEA] = "tea"
        today.sessions["hermes.s1"] = {"policy": None, "messages": said("tea"), "archived": []}
        today.tasks["task-0"] = {"task_id": "task-0", "task_type": "session_commit", "status": "completed"}
        today.fail(**fault)
        with pytest.raises(error) as raised:
            CALLS[call](client)
        if what == "429":
            assert getattr(raised.value, "retry_after", None) == 7
        today.heal()
    client.close()


@pytest.mark.parametrize("call", CALLS)
def test_every_call_ends_when_its_time_is_up(today: Viking, call: str) -> None:
    known = connected(today)
    hasty = Client(Server(today.url, "", "default", "default", ""), 0.1)
    hasty.version, hasty.mode, hasty.user = known.version, known.mode, known.user
    today.fail(delay=30.0)
    with pytest.raises(BackendUnavailable, match="has not answered"):
        CALLS[call](hasty)
    today.heal()
    hasty.close()
    known.close()


def test_a_call_that_is_given_its_own_time_keeps_to_it(today: Viking) -> None:
    client = connected(today)
    today.fail(delay=30.0)
    with pytest.raises(BackendUnavailable, match=r"after 0\.1 s"):
        client.find(SPACE, "tea", [SPACE.memories], 5, timeout=0.1)
    with pytest.raises(BackendUnavailable, match=r"after 0\.1 s"):
        client.find_words(SPACE, {"tea"}, [SPACE.memories], 5, timeout=0.1)
    hasty = Client(Server(today.url, "", "default", "default", ""), 0.1)
    assert not hasty.answers()
    hasty.close()
    client.close()


@pytest.mark.parametrize("answer", [[], "ok", 7, {"status": "ok"}, None])
def test_an_answer_that_is_none_of_openvikings_is_unavailable(today: Viking, answer: Any) -> None:
    client = connected(today)
    today.route("GET", "/api/v1/fs/stat", lambda request: answer)
    with pytest.raises(BackendUnavailable):
        client.stat(SPACE, TEA)
    client.close()


def test_nobody_there_is_unavailable_at_once() -> None:
    client = Client(Server("http://127.0.0.1:9", "", "default", "default", ""), 5.0)
    began = time.monotonic()
    assert not client.answers()
    with pytest.raises(BackendUnavailable, match="is it running"):
        client.connect()
    assert time.monotonic() - began < 5
    client.close()


@pytest.mark.parametrize(
    ("status", "code", "message", "error"),
    [
        (400, "INVALID_ARGUMENT", "body.timeout: Extra inputs are not permitted", BackendRefused),
        (400, "INVALID_URI", "peers is a reserved name", BackendRefused),
        (400, "INVALID_ARGUMENT", "Trusted mode requests must include X-OpenViking-User", BackendAuthError),
        (401, "UNAUTHENTICATED", "Invalid API key", BackendAuthError),
        (
            403,
            "PERMISSION_DENIED",
            "Access denied for viking://user/bob: read permission required",
            BackendRefused,
        ),
        (403, "PERMISSION_DENIED", "ROOT API keys cannot access tenant-scoped data APIs", BackendAuthError),
        (404, "NOT_FOUND", "File not found", BackendNotFound),
        (409, "ALREADY_EXISTS", "File already exists", AlreadyThere),
        (412, "FAILED_PRECONDITION", "Directory is not ready", BackendRefused),
        (429, "RESOURCE_EXHAUSTED", "Too many", BackendUnavailable),
        (500, "INTERNAL", "Internal server error", ServerFault),
        (503, "UNAVAILABLE", "Starting", BackendUnavailable),
        (504, "DEADLINE_EXCEEDED", "Too slow", BackendUnavailable),
    ],
)
def test_each_code_of_the_server_has_its_error(
    today: Viking, status: int, code: str, message: str, error: type[Exception]
) -> None:
    client = connected(today)
    body = {"status": "error", "result": None, "error": {"code": code, "message": message, "details": {}}}
    today.route("GET", "/api/v1/fs/stat", lambda request: (status, body))
    with pytest.raises(error, match=message[:20]) as raised:
        client.stat(SPACE, TEA)
    assert type(raised.value) is error
    client.close()


def test_all_errors_of_our_own_are_reached_by_a_status() -> None:
    raised = {type(_error_of_status(status, "")) for status in range(300, 600)} - {type(None)}
    assert raised == {BackendRefused, AlreadyThere, ServerFault}


def test_the_peer_of_another_is_closed_where_the_server_keeps_them_apart() -> None:
    with Viking(mode="api_key") as server:
        client = connected(server, key="key-of-alice")
        theirs, ours = Space("alice", "hermes-bob"), Space("alice", "hermes")
        client.put(theirs, f"{theirs.memories}/events/a.md", "tea")
        with pytest.raises(BackendRefused):
            client.read(ours, f"{theirs.memories}/events/a.md")
        client.close()


def test_a_key_is_not_in_what_is_printed_of_a_server() -> None:
    assert "secret" not in repr(Server("http://x", "secret", "a", "u", ""))
