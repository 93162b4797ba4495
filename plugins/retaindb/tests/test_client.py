"""Every call, what each flavour answers, and what is made of a server that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hermes_retaindb.client import Client, Memory, Scope

from hermes_core.kit import BackendAuthError, BackendNotFound, BackendRefused, BackendUnavailable
from plugins.retaindb.tests.stand_in import RetainDB

Connect = Callable[..., Client]
ME = Scope("default", "s1")
ADA = Scope("telegram:ada", "s2", alone=False)
BOB = Scope("telegram:bob", "s3", alone=False)
FACT = "The tortoise Quillfeather eats clover."


@pytest.fixture
def client(server: RetainDB, connect: Connect) -> Client:
    """A client of RetainDB Cloud."""
    return connect(server)


CALLS: dict[str, Callable[[Client], Any]] = {
    "search": lambda client: client.search("tortoise", ME, 5),
    "profile": lambda client: client.profile(ME),
    "context": lambda client: client.context("tortoise", ME, 100),
    "reason": lambda client: client.reason("who?", ME),
    "agent": lambda client: client.agent(ME),
    "add": lambda client: client.add(FACT, ME, "factual", 0.7),
    "ingest": lambda client: client.ingest(ME, [("user", FACT)], 1.0, "t1"),
    "ingest_outcome": lambda client: client.ingest_outcome(ME, "Find it.", "Found.", "d1"),
    "forget": lambda client: client.forget("m1"),
    "seed": lambda client: client.seed("I am Mel's agent.", ME),
    "upload": lambda client: client.upload("a.txt", b"tea", "a.txt", "PROJECT"),
    "files": lambda client: client.files("", 10),
    "file": lambda client: client.file("f1"),
    "content": lambda client: client.content("f1"),
    "ingest_file": lambda client: client.ingest_file("f1", ME),
    "delete_file": lambda client: client.delete_file("f1"),
}
every_call = pytest.mark.parametrize("name", CALLS)


@pytest.mark.parametrize("flavour", ["cloud", "server", "local"])
def test_a_memory_is_kept_found_and_forgotten(
    serve: Callable[..., RetainDB], connect: Connect, flavour: str
) -> None:
    client = connect(serve(flavour), key="" if flavour == "local" else "rdb-test-key")
    assert client.add(FACT, ME, "preference", 0.9)
    [found] = client.search("What does the tortoise eat?", ME, 5)
    assert (found.text, found.type, found.user, found.session) == (FACT, "preference", "default", "s1")
    assert found.when == "2026-03-01"
    assert [memory.id for memory in client.profile(ME)] == [found.id]
    assert client.context("tortoise", ME, 100)[0].endswith(FACT)
    assert client.forget(found.id)
    assert not client.forget(found.id)
    assert client.search("tortoise", ME, 5) == []


def test_a_server_with_the_older_routes_alone_is_used_by_them(
    serve: Callable[..., RetainDB], connect: Connect
) -> None:
    client = connect(serve("server", legacy=True))
    memory = client.add(FACT, ME, "factual", 0.5)
    assert [found.text for found in client.profile(ME)] == [FACT]
    assert client.forget(memory)
    assert not client.forget(memory)


def test_a_memory_that_is_not_stored_yet_is_found_by_its_user(
    serve: Callable[..., RetainDB], connect: Connect
) -> None:
    server = serve(lagging=True)
    client = connect(server)
    client.add(FACT, ADA, "factual", 0.5)
    for found in (client.search("anything", ADA, 5), client.profile(ADA)):
        assert [(memory.text, memory.pending, memory.unscored) for memory in found] == [(FACT, True, True)]
    assert client.search("anything", BOB, 5) == client.profile(BOB) == []
    server.settle()
    assert not client.search("tortoise", ADA, 5)[0].pending


def test_memories_of_other_people_are_dropped_whatever_the_server_sends(
    server: RetainDB, client: Client
) -> None:
    for who in (ADA, BOB, ME):
        client.ingest(who, [("user", f"The tortoise of {who.user} is slow.")], 1.0, who.user)
    server.leaked += [memory for memory in server.memories if memory.user == BOB.user]
    assert [memory.user for memory in client.search("tortoise", ADA, 1)] == [ADA.user]
    assert [memory.user for memory in client.search("tortoise", ME, 1)] == ["default"]
    assert [request.json["top_k"] for request in server.requests[-2:]] == [50, 3]


def test_what_waits_for_other_people_is_dropped_too(
    serve: Callable[..., RetainDB], connect: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(lagging=True)
    client = connect(server)
    client.add("The tortoise of Bob is slow.", BOB, "factual", 0.5, "w1")
    overlay = server._overlay
    monkeypatch.setattr(server, "_overlay", lambda body: overlay({**body, "user_id": BOB.user}))
    assert client.search("tortoise", ADA, 5) == []
    assert len(client.search("tortoise", BOB, 5)) == 1


def test_a_write_that_comes_twice_is_stored_once(server: RetainDB, client: Client) -> None:
    first = client.add(FACT, ME, "factual", 0.5, "w1")
    assert client.add(FACT, ME, "factual", 0.5, "w1") == first
    assert client.add(FACT, ME, "goal", 0.5, "w1") != first
    for _ in range(2):
        client.ingest(ME, [("user", "We meet on Friday.")], 1_700_000_000.0, "t1")
    assert server.known() == [FACT, "We meet on Friday."]


def test_messages_are_sent_as_the_server_takes_them(server: RetainDB, client: Client) -> None:
    client.ingest(
        ME, [("user", "be\x00fore \ud83d"), ("assistant", " "), ("assistant", "x" * 40_000)], 1.5, "t1"
    )
    sent = server.requests[-1].json
    assert sent["write_mode"] == "async"
    assert [message["content"][:8] for message in sent["messages"]] == ["before ?", "xxxxxxxx"]
    assert len(sent["messages"][1]["content"]) <= 32_000
    assert {message["timestamp"] for message in sent["messages"]} == {"1970-01-01T00:00:01.500Z"}
    before = len(server.requests)
    client.ingest(ME, [("user", "\x00 ")], 1.0, "t2")
    assert len(server.requests) == before


def test_the_result_of_a_subagent_is_an_event(server: RetainDB, client: Client) -> None:
    client.ingest_outcome(ME, "x" * 3000, "y" * 9000, "d1")
    [event] = server.requests[-1].json["events"]
    assert (event["kind"], len(event["summary"]), len(event["details"])) == ("outcome", 1000, 5000)
    client.ingest_outcome(ME, "", "Found.", "d2")
    assert server.known()[-1] == "-. Found."


def test_a_synchronous_write_would_be_refused_and_is_never_asked_for(
    server: RetainDB, client: Client
) -> None:
    body = {"project": "p1", "session_id": "s1", "user_id": "u", "messages": [], "write_mode": "sync"}
    with pytest.raises(BackendAuthError, match="write_mode=sync is restricted"):
        client._api.post("/v1/memory/ingest/session", body)
    client.add(FACT, ME, "factual", 0.5)
    assert server.requests[-1].json["write_mode"] == "async"


def test_context_of_an_earlier_answer_is_not_sent_again(client: Client) -> None:
    client.add(FACT, ME, "factual", 0.5)
    text, digest = client.context("tortoise", ME, 100)
    assert client.context("tortoise", ME, 100, digest) == ("", digest)
    client.add("It is forty years old.", ME, "factual", 0.5)
    assert client.context("tortoise", ME, 100, digest)[0] != ""
    assert text == FACT


@pytest.mark.parametrize(
    ("flavour", "answer", "asked"),
    [
        ("cloud", "asked (low): who?", ["ask", "ask"]),
        ("server", "reasoned about default", ["ask", "dialectic", "dialectic"]),
        ("local", None, ["ask", "dialectic"]),
    ],
)
def test_reasoning_is_asked_for_where_there_is_some_and_looked_for_once(
    serve: Callable[..., RetainDB], connect: Connect, flavour: str, answer: str | None, asked: list[str]
) -> None:
    server = serve(flavour)
    client = connect(server)
    assert client.reason("who?", ME) == client.reason("who?", ME) == answer
    assert [request.path.rpartition("/")[2] for request in server.requests] == asked


@pytest.mark.parametrize(("length", "effort"), [(20, "low"), (200, "medium"), (800, "high")])
def test_a_longer_question_is_reasoned_about_longer(
    server: RetainDB, client: Client, length: int, effort: str
) -> None:
    client.reason("x" * length, ME)
    assert server.requests[-1].json["reasoning_level"] == effort


def test_the_agent_is_known_after_it_was_told(server: RetainDB, connect: Connect) -> None:
    assert connect(server).agent(ME) is None
    assert connect(server).seed("I am Mel's agent.", ME)
    assert connect(server).agent(ME)["persona"] == "I am Mel's agent."


def test_a_file_goes_through_its_life(server: RetainDB, client: Client) -> None:
    file = client.upload("Zürich.txt", b"The tortoise sleeps.", "notes/z.txt", "USER")
    assert file is not None
    assert client.files("notes/", 10) == [file]
    assert client.files("other/", 10) == []
    assert client.file(file["id"])["path"] == "/notes/z.txt"
    assert client.content(file["id"]).content == b"The tortoise sleeps."
    client.ingest_file(file["id"], ME)
    assert server.known() == ["The tortoise sleeps."]
    client.delete_file(file["id"])
    with pytest.raises(BackendNotFound):
        client.file(file["id"])


def test_a_server_without_files_and_models_is_asked_once(
    serve: Callable[..., RetainDB], connect: Connect
) -> None:
    server = serve("local")
    client = connect(server)
    for _ in range(2):
        assert client.files("", 5) is client.upload("a", b"", "a", "USER") is client.agent(ME) is None
        assert not client.seed("I am.", ME)
    assert len(server.requests) == 3


# ------------------------------------------------------------------- a server that fails

STATUS = {
    400: BackendRefused,
    401: BackendAuthError,
    403: BackendAuthError,
    409: BackendRefused,
    422: BackendRefused,
    429: BackendUnavailable,
    500: BackendUnavailable,
    503: BackendUnavailable,
    504: BackendUnavailable,
}


@every_call
def test_each_refusal_has_its_error_in_every_call(server: RetainDB, client: Client, name: str) -> None:
    for status, error in STATUS.items():
        server.fail(status=status, times=1)
        with pytest.raises(error, match=f"answered {status}") as raised:
            CALLS[name](client)
        assert type(raised.value) is error


def test_a_wrong_key_names_the_variable(server: RetainDB, connect: Connect) -> None:
    with pytest.raises(BackendAuthError, match="Invalid API key'; check RETAINDB_API_KEY"):
        connect(server, key="wrong").profile(ME)


def test_the_server_s_own_words_are_handed_on(server: RetainDB, client: Client) -> None:
    with pytest.raises(BackendRefused, match="400: 'content must have 1 to 10000 characters'"):
        client.add("", ME, "factual", 0.5)


def test_a_busy_server_says_for_how_long(server: RetainDB, client: Client) -> None:
    server.fail("POST", "/v1/memory/ingest/session", status=429, retry_after=7, times=1)
    with pytest.raises(BackendUnavailable) as raised:
        CALLS["ingest"](client)
    assert raised.value.retry_after == 7
    CALLS["ingest"](client)


@every_call
def test_a_broken_answer_is_unavailable_in_every_call(server: RetainDB, client: Client, name: str) -> None:
    for fault in ({"cut": True}, {"drop": True}):
        server.fail(**fault, times=1)
        with pytest.raises(BackendUnavailable, match="can't be reached"):
            CALLS[name](client)


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"content"}))  # a file may hold anything
def test_what_is_no_json_is_no_answer(server: RetainDB, client: Client, name: str) -> None:
    for prepare in ("add", "upload", "seed"):
        CALLS[prepare](client)
    server.fail(garbage=True)
    with pytest.raises(BackendUnavailable, match="something else than its API"):
        CALLS[name](client)


@pytest.mark.parametrize("answer", [[], "text", {"results": "none"}, {"results": {}}])
def test_an_answer_of_another_shape_is_no_answer(server: RetainDB, client: Client, answer: Any) -> None:
    server.route("POST", "/v1/memory/search", lambda request: answer)
    with pytest.raises(BackendUnavailable, match="is this its address"):
        CALLS["search"](client)


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"memory": None},
        {"memory": "tea"},
        {"memory": {"id": None, "content": None}},
        {"memory": {"content": "tea", "temporal": "soon"}, "similarity": "high", "scores": [1]},
    ],
)
def test_a_result_that_lacks_fields_is_borne(server: RetainDB, client: Client, found: Any) -> None:
    server.route("POST", "/v1/memory/search", lambda request: {"results": [found, "junk", None]})
    assert client.search("tea", ME, 5) in ([], [Memory("", "tea", unscored=True)])


@pytest.mark.parametrize(
    "answer",
    [[], "stored", {}, None, {"success": False}, {"hello": "world"}, {"status": "ok"}, {"job_id": 7}],
)
def test_a_write_that_is_answered_in_another_shape_is_in_doubt(
    server: RetainDB, client: Client, answer: Any
) -> None:
    for path in ("/v1/memory", "/v1/memory/ingest/session"):
        server.route("POST", path, lambda request: answer)
    for call in ("add", "ingest", "ingest_outcome") if answer != {"job_id": 7} else ("add",):
        with pytest.raises(BackendUnavailable, match="is this its address"):
            CALLS[call](client)


@pytest.mark.parametrize("answer", [{"hello": "world"}, {"status": "ok"}, []])
def test_a_memory_is_not_forgotten_by_a_server_that_does_not_say_so(
    server: RetainDB, client: Client, answer: Any
) -> None:
    server.route("DELETE", "/v1/memory/*", lambda request: answer)
    with pytest.raises(BackendUnavailable, match="is this its address"):
        client.forget("m1")


@pytest.mark.parametrize(
    ("call", "method", "path"),
    [
        ("search", "POST", "/v1/memory/search"),
        ("profile", "GET", "/v1/memory/profile/*"),
        ("files", "GET", "/v1/files"),
    ],
)
def test_an_answer_without_the_list_that_was_asked_for_is_none(
    server: RetainDB, client: Client, call: str, method: str, path: str
) -> None:
    server.route(method, path, lambda request: {"hello": "world"})
    with pytest.raises(BackendUnavailable, match="is this its address"):
        CALLS[call](client)


def test_a_slow_server_is_given_up(server: RetainDB, connect: Connect) -> None:
    server.fail(delay=5)
    with pytest.raises(BackendUnavailable, match=r"not answered after 0\.2 s"):
        connect(server, timeout=0.2).search("tortoise", ME, 5)


def test_a_score_goes_by_either_name(serve: Callable[..., RetainDB], connect: Connect) -> None:
    for name in ("similarity", "score"):
        client = connect(serve(scores=name))
        client.add(FACT, ME, "factual", 0.5)
        assert client.search("tortoise clover", ME, 5)[0].score == 1.0
