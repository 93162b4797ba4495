"""Every call in both APIs, every error of the SDK, and what is made of a server that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest
import supermemory
from hermes_supermemory.api_v5 import V5, _sdk_errors
from hermes_supermemory.client import Client
from supermemory import errors
from supermemory.core.api_error import ApiError
from supermemory.core.parse_error import ParsingError

from hermes_core import HermesError
from hermes_core.kit import BackendAuthError, BackendNotFound, BackendRefused, BackendUnavailable, ConfigError
from hermes_memory_testing import Raw
from plugins.supermemory.tests.stand_in import Supermemory

Connect = Callable[..., Client]
Serve = Callable[..., Supermemory]
NS = "hermes"
FACT = "The tortoise Quillfeather eats clover."
LABELS = {"type": "fact"}

CALLS: dict[str, Callable[[Client], Any]] = {
    "search": lambda client: client.search(NS, "tortoise", 5, "hybrid"),
    "profile": lambda client: client.profile(NS),
    "matching": lambda client: client.matching(NS, "tortoise"),
    "document": lambda client: client.document(NS, "d1"),
    "store": lambda client: client.store(NS, "d9", FACT, LABELS),
    "append": lambda client: client.append(NS, "c9", "p1", FACT, LABELS, "", ""),
    "take_back": lambda client: client.take_back(NS, "d1", {"p1"}),
    "forget": lambda client: client.forget(NS, "mem1"),
    "delete": lambda client: client.delete(NS, "d1"),
}
every_call = pytest.mark.parametrize("name", CALLS)


@pytest.fixture
def client(server: Supermemory, connect: Connect) -> Client:
    """A client that knows by now which API the server speaks, and one document on the server."""
    client = connect(server)
    client.store(NS, "d1", FACT, LABELS)
    return client


# --------------------------------------------------------------------------------- calls


def test_a_document_is_sent_found_and_deleted(server: Supermemory, client: Client) -> None:
    [found] = client.search(NS, "What does the tortoise eat?", 5, "hybrid")
    assert (found.text, found.when, found.score > 0.3) == (FACT, "2026-03-01", True)
    document = client.document(NS, "d1")
    assert document is not None
    assert (document.content, document.status, document.metadata) == (FACT, "done", LABELS)
    assert client.delete(NS, "d1")
    assert not client.delete(NS, "d1")
    assert client.document(NS, "d1") is None
    assert client.search(NS, "tortoise", 5, "hybrid") == []


def test_a_text_is_sent_once_under_its_id(server: Supermemory, client: Client) -> None:
    assert not client.store(NS, "d1", FACT, LABELS)
    assert server.known() == [FACT]


def test_context_for_the_extraction_is_cut_to_what_is_read(server: Supermemory, client: Client) -> None:
    client.store(NS, "d2", FACT, LABELS, "Keep what lasts. " * 200)
    assert 1000 < len(server.documents[NS, "d2"].context) <= 1500


def test_a_memory_is_forgotten_by_its_id(server: Supermemory, client: Client) -> None:
    [found] = client.matching(NS, "tortoise")
    assert server.known() == [FACT]
    assert client.forget(NS, found.id)
    assert not client.forget(NS, found.id)
    assert not client.forget(NS, "no-such")
    assert server.known() == []


def test_the_profile_is_two_lists_of_texts(server: Supermemory, client: Client) -> None:
    assert client.profile(NS) == ([], [])
    server.profiles[NS] = (["Mel lives in Lund."], ["Mel is moving."])
    assert client.profile(NS) == (["Mel lives in Lund."], ["Mel is moving."])


@pytest.mark.parametrize(("mode", "texts"), [("memories", 1), ("documents", 1), ("hybrid", 1)])
def test_each_mode_searches_what_it_names(server: Supermemory, client: Client, mode: str, texts: int) -> None:
    server.memories.clear()
    server.documents[NS, "d1"].content = "A passage about the tortoise."
    client.store(NS, "d2", FACT, LABELS)
    server.documents[NS, "d2"].content = ""
    found = [one.text for one in client.search(NS, "tortoise", 5, mode)]
    passage = ["A passage about the tortoise."]
    assert sorted(found) == sorted(
        {"memories": [FACT], "documents": passage, "hybrid": [FACT, *passage]}[mode]
    )


def test_what_fits_less_than_asked_is_left_out_and_a_text_comes_once(client: Client) -> None:
    client.store(NS, "d2", FACT, LABELS)
    assert len(client.search(NS, "tortoise clover", 5, "memories", 0.9)) == 1
    assert client.search(NS, "tortoise boathouse garden", 5, "memories", 0.9) == []


def test_containers_are_apart(server: Supermemory, client: Client) -> None:
    assert client.search("hermes_coder", "tortoise", 5, "hybrid") == []
    assert client.matching("hermes_coder", "tortoise") == []
    assert not client.forget("hermes_coder", "mem1")
    assert server.known() == [FACT]


# ------------------------------------------------------------------------------- sessions


def append(client: Client, part: str, text: str) -> None:
    client.append(NS, "c1", part, text, {"session_id": "s1"}, "", "2026-03-01")


def test_turns_of_a_session_are_added_to_one_document(server: Supermemory, client: Client) -> None:
    append(client, "p1", "user: The tortoise eats clover.")
    append(client, "p2", "user: It is called Quillfeather.")
    assert len(server.documents) == 2
    assert server.said == ["The tortoise eats clover.", "It is called Quillfeather."]
    assert server.documents[NS, "c1"].metadata["session_id"] == "s1"


def test_a_turn_that_was_taken_is_not_sent_again_whoever_asks(
    server: Supermemory, client: Client, connect: Connect
) -> None:
    append(client, "p1", "user: The tortoise eats clover.")
    append(client, "p1", "user: The tortoise eats clover.")
    append(connect(server), "p1", "user: The tortoise eats clover.")
    assert server.said == ["The tortoise eats clover."]


def test_a_turn_whose_answer_was_lost_is_looked_up_first(server: Supermemory, client: Client) -> None:
    append(client, "p1", "user: one")
    path = "/ns/*" if server.speaks == "v5" else "/v3/*"
    server.fail("POST", path, cut=True, times=1)
    with pytest.raises(BackendUnavailable):
        append(client, "p2", "user: two")
    append(client, "p2", "user: two")
    append(client, "p3", "user: three")
    assert server.said == ["one", "two", "three"]


def test_a_turn_that_was_not_taken_is_sent_again(server: Supermemory, client: Client) -> None:
    server.fail(status=503, times=1)
    with pytest.raises(BackendUnavailable):
        append(client, "p1", "user: one")
    append(client, "p1", "user: one")
    assert server.said == ["one"]


def test_a_document_that_is_still_being_read_tells_its_last_turn(
    server: Supermemory, client: Client, connect: Connect
) -> None:
    server.reading = 3
    append(client, "p1", "user: one")
    append(connect(server), "p1", "user: one")
    assert server.said == ["one"]


def test_turns_are_taken_back_with_what_was_learned_from_them(server: Supermemory, client: Client) -> None:
    for part in ("one", "two", "three"):
        append(client, part, f"user: turn {part}\nassistant: noted {part}")
    client.take_back(NS, "c1", {"one", "three", "never-sent"})
    assert server.known() == [FACT, "turn two", "noted two"]
    client.take_back(NS, "c1", {"two"})
    assert (NS, "c1") not in server.documents
    client.take_back(NS, "c1", {"two"})
    assert server.known() == [FACT]


def test_what_is_still_being_read_is_taken_back_later(serve: Serve, connect: Connect) -> None:
    server = serve("v5")
    client = connect(server)
    append(client, "one", "user: turn one")
    server.reading = 2
    append(client, "two", "user: turn two")
    with pytest.raises(BackendUnavailable, match="still being read") as raised:
        client.take_back(NS, "c1", {"two"})
    assert raised.value.retry_after == 5.0
    with pytest.raises(BackendUnavailable):
        client.take_back(NS, "c1", {"two"})
    client.take_back(NS, "c1", {"two"})
    assert server.known() == ["turn one"]


@pytest.mark.parametrize("status", ["done", "failed"])
def test_a_document_whose_text_is_not_shown_is_not_deleted_for_one_turn_of_it(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    server = serve("v5")
    client = connect(server)
    append(client, "one", "user: turn one")
    append(client, "two", "user: turn two")
    shown = server._told(server.documents[NS, "c1"])
    unshown = {**shown, "content": None, "status": status, "system": {"status": status}}
    monkeypatch.setattr(server, "_told", lambda _: unshown)
    with pytest.raises(BackendRefused, match="shows no text"):
        client.take_back(NS, "c1", {"two"})
    assert (NS, "c1") in server.documents


def test_a_turn_that_is_not_read_yet_is_taken_back_once_it_is(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("v5")
    client = connect(server)
    append(client, "one", "user: turn one")
    shown = server._told(server.documents[NS, "c1"])
    append(client, "two", "user: turn two")
    early = {**shown, "status": "queued", "system": {"status": "queued"}}
    with monkeypatch.context() as patch:
        patch.setattr(server, "_told", lambda _: early)
        with pytest.raises(BackendUnavailable, match="still being read"):
            client.take_back(NS, "c1", {"two"})
    client.take_back(NS, "c1", {"two"})
    assert server.known() == ["turn one"]


def test_nothing_is_rewritten_when_there_is_nothing_to_take_back(server: Supermemory, client: Client) -> None:
    append(client, "p1", "user: one")
    client.take_back(NS, "c1", {"p9"})
    assert "PATCH" not in {request.method for request in server.requests}


def test_a_document_that_the_server_fails_to_delete_is_not_taken_for_gone(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("v5")
    client = connect(server)
    append(client, "one", "user: turn one")
    failed = {"count": 0, "errors": [{"id": "c1", "error": "storage is down"}]}
    with monkeypatch.context() as patch:
        patch.setattr(server, "_delete_all", lambda _ns, _body: failed)
        for call in (lambda: client.delete(NS, "c1"), lambda: client.take_back(NS, "c1", {"one"})):
            with pytest.raises(BackendUnavailable, match="storage is down"):
                call()
    client.take_back(NS, "c1", {"one"})
    assert server.known() == []


def test_a_gateway_with_many_sessions_keeps_no_more_than_it_needs(client: Client) -> None:
    client.remembers = 2
    for number in range(5):
        client.append(NS, f"c{number}", "p1", "user: hi", {}, "", "")
    assert len(client._answered) <= 2


# ------------------------------------------------------------------------- which API it is


def test_a_server_without_v5_is_found_out_by_its_first_answer(serve: Serve, connect: Connect) -> None:
    server = serve("v4")
    client = connect(server)
    client.append(NS, "c1", "p1", "user: one", {}, "", "")
    asked = [request.path for request in server.requests]
    assert [path for path in asked if path.startswith("/ns/")] == asked[:2]
    assert server.said == ["one"]


def test_v5_is_not_doubted_once_it_has_answered(serve: Serve, connect: Connect) -> None:
    server = serve("v5")
    client = connect(server)
    assert client.profile(NS) == ([], [])
    server.fail(status=404, times=1)
    with pytest.raises(BackendNotFound):
        client.profile(NS)
    assert client.profile(NS) == ([], [])


@pytest.mark.parametrize(("api", "speaks"), [("v5", "v4"), ("v4", "v5")])
def test_an_api_that_is_set_is_the_only_one_spoken(
    serve: Serve, connect: Connect, api: str, speaks: str
) -> None:
    server = serve(speaks)
    with pytest.raises(BackendNotFound):
        connect(server, api).profile(NS)
    assert len(server.requests) == 1


def test_v4_alone_needs_no_sdk(serve: Serve) -> None:
    import subprocess
    import sys

    server = serve("v4")
    code = (
        "import sys; from hermes_supermemory.client import Client\n"
        f"Client({server.url!r}, 'sm_test_key', 'v4', 5.0).profile('hermes')\n"
        "print('supermemory' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# -------------------------------------------------------------------- a server that fails

STATUS = {
    400: BackendRefused,
    401: BackendAuthError,
    402: BackendAuthError,
    403: BackendAuthError,
    409: BackendRefused,
    422: BackendRefused,
    429: BackendUnavailable,
    500: BackendUnavailable,
    502: BackendUnavailable,
    503: BackendUnavailable,
}


def has_no_body(server: Supermemory, name: str) -> bool:
    """Whether a good answer of this call is a 204."""
    return server.speaks == "v4" and name == "delete"


@every_call
def test_each_refusal_has_its_error_in_every_call(server: Supermemory, client: Client, name: str) -> None:
    for status, error in STATUS.items():
        server.fail(status=status, times=1)
        with pytest.raises(error, match=f"answered {status}: 'told to answer {status}'"):
            CALLS[name](client)


@every_call
def test_a_broken_answer_is_unavailable_in_every_call(server: Supermemory, client: Client, name: str) -> None:
    for fault in ({"drop": True}, {"cut": True}):
        if "cut" in fault and has_no_body(server, name):
            continue
        server.fail(**fault, times=1)
        with pytest.raises(BackendUnavailable):
            CALLS[name](client)


@every_call
def test_what_is_no_json_is_no_answer(server: Supermemory, client: Client, name: str) -> None:
    if has_no_body(server, name):
        pytest.skip("an answer without a body")
    server.fail(garbage=True)
    with pytest.raises(BackendUnavailable, match="something else than"):
        CALLS[name](client)


@pytest.mark.parametrize("answer", [[], "text", {}, {"results": None}, {"results": {}}, {"profile": []}])
def test_an_answer_of_another_shape_is_no_answer(server: Supermemory, client: Client, answer: Any) -> None:
    for prefix in ("/ns/*", "/v4/*"):
        server.route("POST", prefix, lambda request: answer)
    for name in ("search", "profile"):
        with pytest.raises(BackendUnavailable, match=r"without|something else"):
            CALLS[name](client)


@pytest.mark.parametrize("answer", [None, [], "text", {}, {"id": None, "status": "ok"}])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_write_that_is_answered_in_another_shape_is_in_doubt(
    server: Supermemory, client: Client, method: str, answer: Any
) -> None:
    for path in ("/ns/*", "/v3/*"):
        server.route(method, path, lambda request: answer)
    for name in ("store", "append"):
        with pytest.raises(BackendUnavailable, match="something else"):
            CALLS[name](client)


@pytest.mark.parametrize(
    "row", [{}, {"id": None, "memory": None}, {"memory": 7}, {"similarity": "high"}, None]
)
def test_a_result_that_lacks_fields_is_borne(server: Supermemory, client: Client, row: Any) -> None:
    good = {"id": "m1", "memory": FACT, "similarity": 0.9, "metadata": None}
    for prefix in ("/ns/*", "/v4/*"):
        server.route("POST", prefix, lambda request: {"results": [row, good]})
    assert FACT in [one.text for one in client.search(NS, "tortoise", 5, "hybrid")]


def test_a_busy_server_says_for_how_long(server: Supermemory, client: Client) -> None:
    server.fail(status=429, retry_after=7, times=1)
    with pytest.raises(BackendUnavailable) as raised:
        CALLS["search"](client)
    assert raised.value.retry_after == 7


def test_one_call_is_one_try(server: Supermemory, client: Client) -> None:
    before = len(server.requests)
    server.fail(status=503)
    with pytest.raises(BackendUnavailable):
        CALLS["search"](client)
    assert len(server.requests) == before + 1


@pytest.mark.parametrize("slow", [{"delay": 5}, {"drip": True}])
def test_a_slow_server_is_given_up(server: Supermemory, connect: Connect, slow: dict[str, Any]) -> None:
    client = connect(server, server.speaks, timeout=0.2)
    server.fail(**slow)
    with pytest.raises(BackendUnavailable, match="not answered"):
        client.search(NS, "tortoise", 5, "hybrid")


def test_a_server_that_is_not_there_is_unavailable(connect: Connect, serve: Serve) -> None:
    for api in ("v5", "v4"):
        client = Client("http://127.0.0.1:9", "k", api, 1.0)
        with pytest.raises(BackendUnavailable, match="can't be reached"):
            client.profile(NS)
        client.close()


def test_a_wrong_key_names_its_variable(server: Supermemory, connect: Connect) -> None:
    with pytest.raises(BackendAuthError, match="SUPERMEMORY_API_KEY"):
        connect(server, server.speaks, key="wrong").profile(NS)


def test_a_plan_that_is_used_up_keeps_what_waits(serve: Serve, connect: Connect) -> None:
    server = serve()
    server.fail(status=402)
    with pytest.raises(BackendAuthError, match="the plan's limit is used up"):
        connect(server).profile(NS)


def test_a_redirect_is_not_followed_and_told_with_the_address_that_it_names(
    server: Supermemory, connect: Connect
) -> None:
    moved = Raw(headers={"Location": "https://elsewhere.example/profile"})
    for path in ("/ns/*", "/v4/profile"):
        server.route("POST", path, lambda request: (307, moved))
    with pytest.raises(BackendUnavailable, match=r"answered 307: 'https://elsewhere.example/profile'"):
        connect(server, server.speaks).profile(NS)


@pytest.mark.parametrize(
    "fault", [{"status": 401}, {"status": 503}, {"garbage": True}, {"drop": True}, {"delay": 3.0}], ids=str
)
def test_every_trouble_names_the_address(
    server: Supermemory, connect: Connect, fault: dict[str, Any]
) -> None:
    server.fail(**fault)
    client = connect(server, server.speaks, timeout=0.3)
    for call in (lambda: client.profile(NS), lambda: client.search(NS, "tea", 3, "hybrid")):
        with pytest.raises(HermesError, match=f"^Supermemory at '{server.url}'"):
            call()


@pytest.mark.parametrize("url", ["localhost:8000", "http://", "ftp://x"])
def test_an_address_that_is_none_is_told_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match=r"'base_url': '.*' is no address; write it as https"):
        Client(url, "", "auto", 1.0)


# ------------------------------------------------------------- every error class of the SDK


def made_of(status: int) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("POST", "http://x"), json={"error": "why"})


def sdk_errors() -> Iterator[Exception]:
    """One of each error class that the SDK has, its own and those of the generated code."""
    request = httpx.Request("POST", "http://x")
    yield supermemory.SupermemoryError("no key")
    yield supermemory.APIError("odd", request, body=None)
    yield supermemory.APIConnectionError(request=request)
    yield supermemory.APITimeoutError(request)
    yield supermemory.APIResponseValidationError(made_of(200), None)
    yield supermemory.APIStatusError("odd", response=made_of(418), body=None, status_code=418)
    for name, status in STATUS_CLASSES.items():
        response = made_of(status)
        yield getattr(supermemory, name)("no", response=response, body={"error": "why"}, status_code=status)
    for name in filter(partial(hasattr, errors), GENERATED):  # 5.0.0 has not all of them
        yield getattr(errors, name)(body={"error": "why"}, headers={"Retry-After": "3"})
    yield ApiError(status_code=418, body="why")
    yield ParsingError(status_code=200, body="why")


STATUS_CLASSES = {
    "BadRequestError": 400,
    "AuthenticationError": 401,
    "PermissionDeniedError": 403,
    "NotFoundError": 404,
    "ConflictError": 409,
    "UnprocessableEntityError": 422,
    "RateLimitError": 429,
    "InternalServerError": 500,
}
GENERATED = (
    *("BadRequestError", "UnauthorizedError", "PaymentRequiredError", "ForbiddenError", "NotFoundError"),
    *("ConflictError", "TooManyRequestsError", "InternalServerError", "BadGatewayError"),
    "ServiceUnavailableError",
)
MEANING = {
    400: "Refused",
    401: "AuthError",
    402: "AuthError",
    403: "AuthError",
    404: "NotFound",
    409: "Refused",
}
MEANING |= {418: "Refused", 422: "Refused", 429: "Unavailable", 500: "Unavailable", 502: "Unavailable"}


@pytest.mark.parametrize(
    "error", [*sdk_errors()], ids=lambda error: f"{type(error).__module__}.{type(error).__name__}"
)
def test_every_error_of_the_sdk_has_one_of_the_host(error: Exception) -> None:
    with (
        pytest.raises((BackendUnavailable, BackendAuthError, BackendRefused)) as raised,
        _sdk_errors("Supermemory"),
    ):
        raise error
    status = getattr(error, "status_code", None) or 0
    assert type(raised.value).__name__ == f"Backend{MEANING.get(status, 'Unavailable')}"


def test_no_error_class_of_the_sdk_is_forgotten() -> None:
    tried = {type(error) for error in sdk_errors()}
    public = [getattr(supermemory, name) for name in supermemory.__all__]
    known = [value for value in [*public, *vars(errors).values()] if isinstance(value, type)]
    assert {cls for cls in known if issubclass(cls, Exception)} <= tried


def test_the_sdk_is_told_where_it_is_used_from_and_with_which_key(serve: Serve) -> None:
    server = serve()
    api = V5(server.url, "sm_test_key", 2.0)
    api.profile(NS, None)
    headers = server.requests[0].headers
    assert (headers["authorization"], headers["x-sm-source"]) == ("Bearer sm_test_key", "hermes")
    api.close()
