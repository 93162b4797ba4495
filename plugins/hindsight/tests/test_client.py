"""The edge: every call of the API, and what becomes of everything that can go wrong with one."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from hermes_hindsight.client import Client, translate_error

from hermes_core.errors import BackendAuthError, BackendNotFound, BackendRefused, BackendUnavailable
from hermes_core.kit import ConfigError
from hermes_memory_testing import StandIn
from hermes_memory_testing.http_server import Raw
from plugins.hindsight.tests.stand_in import KEY, HindsightServer

ITEM = {"content": "Mel likes tea.", "tags": ["a"], "metadata": {"session_id": "s1"}, "context": "talk"}
OPERATION = "a319cc63-5f52-4f8c-b7ba-36aeee63e44e"


def run(server: StandIn, *asks: Callable[[Client], Awaitable[Any]], **options: Any) -> list[Any]:
    """Ask these of one client, one after the other."""

    async def session() -> list[Any]:
        client = Client(server.url, **options)
        try:
            return [await ask(client) for ask in asks]
        finally:
            await client.close()

    return asyncio.run(session())


def keep(client: Client, **more: Any) -> Awaitable[None]:
    return client.retain("b", {**ITEM, **more}, document="d")


def test_what_is_kept_is_recalled_read_listed_and_deleted(server: HindsightServer) -> None:
    _, found, text, listed, stats, _, after = run(
        server,
        keep,
        lambda c: c.recall("b", "Who likes it?", types=["world"], max_tokens=100, prefer_observations=True),
        lambda c: c.document("b", "d"),
        lambda c: c.documents("b", ["a"]),
        lambda c: c.stats("b"),
        lambda c: c.forget("b", "d"),
        lambda c: c.document("b", "d"),
    )
    assert [(m.text, m.metadata) for m in found] == [("Mel likes tea.", {"session_id": "s1"})]
    assert (text, listed, stats.total_documents, after) == ("Mel likes tea.", ["d"], 1, None)


@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_carries_nothing_elsewhere_and_is_told(server: HindsightServer, status: int) -> None:
    with StandIn() as old:
        for method in ("GET", "POST"):
            moved = Raw(b"", {"Location": f"{server.url}/"})
            old.route(method, "/*", lambda request, moved=moved: (status, moved))
        for ask in (keep, lambda c: c.recall("b", "Who likes it?"), lambda c: c.version()):
            with pytest.raises(BackendUnavailable, match=f"answered {status}: '{server.url}/'"):
                run(old, ask)
    assert server.requests == []


def test_an_operation_is_taken_once_and_followed(server: HindsightServer) -> None:
    server.hold = True

    def taken(client: Client) -> Awaitable[None]:
        return client.retain("b", {**ITEM, "update_mode": "append"}, document="d", operation=OPERATION)

    def pending(client: Client) -> Awaitable[bool]:
        return client.is_processing("b", OPERATION)

    assert run(server, taken, taken, pending)[2]
    server.work()
    assert run(server, pending) == [False]
    assert server.texts("b") == {"d": "Mel likes tea."}


def test_a_failed_operation_is_listed_and_tried_again(server: HindsightServer) -> None:
    server.fail_extraction = True
    _, failed = run(
        server,
        lambda c: c.retain("b", ITEM, document="d", operation=OPERATION),
        lambda c: c.operations("b", "failed"),
    )
    assert [(one.id, one.error_message) for one in failed] == [(OPERATION, "Fact extraction failed")]
    server.fail_extraction = False
    _, failed = run(server, lambda c: c.retry("b", OPERATION), lambda c: c.operations("b", "failed"))
    assert (failed, server.texts("b")) == ([], {"d": "Mel likes tea."})


def test_the_server_reflects_and_tells_its_version(server: HindsightServer) -> None:
    _, answer, version = run(
        server, keep, lambda c: c.reflect("b", "tea?", budget="low"), lambda c: c.version()
    )
    assert (answer, version) == ("From 1 facts: Mel likes tea.", "1.1.0")


def test_mission_and_dispositions_make_a_bank(server: HindsightServer) -> None:
    config = {"reflect_mission": "M", "disposition_empathy": 5}
    run(server, lambda c: c.configure("new", config))
    assert server.banks["new"].config == config


def test_a_bank_that_was_never_written_to_is_empty_and_no_error(server: HindsightServer) -> None:
    answers = run(
        server,
        lambda c: c.recall("none", "tea"),
        lambda c: c.document("none", "d"),
        lambda c: c.documents("none", ["a"]),
        lambda c: c.operations("none"),
        lambda c: c.is_processing("none", OPERATION),
        lambda c: c.stats("none"),
        lambda c: c.forget("none", "d"),
    )
    assert answers == [[], None, [], [], False, None, None]


def test_odd_ids_stay_what_they_are(server: HindsightServer) -> None:
    odd = ["../../x", "..", ".", "a b/ü?#%", "half \ud83d"]
    run(server, *(lambda c, id_=id_: c.retain("b", ITEM, document=id_) for id_ in odd))
    assert list(server.texts("b")) == ["../../x", "_..", "_.", "a b/ü?#%", "half ?"]
    run(server, *(lambda c, id_=id_: c.forget("b", id_) for id_ in odd))
    assert server.texts("b") == {}


def test_a_key_is_sent_and_we_say_who_we_are() -> None:
    with HindsightServer(KEY) as server:
        run(server, lambda c: c.version(), api_key=KEY)
        headers = server.requests[0].headers
        with pytest.raises(BackendAuthError, match="check HINDSIGHT_API_KEY"):
            run(server, lambda c: c.version(), api_key="wrong")
    assert headers["user-agent"].startswith("hermes-memory hindsight-client-python/1.")


@pytest.mark.parametrize("url", ["", "localhost:8888", "ftp://x", "http://"])
def test_an_address_that_is_none_is_told_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="write it as https"):
        Client(url)


# ---------------------------------------------------------------------- trouble

CALLS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "retain": keep,
    "recall": lambda c: c.recall("b", "tea"),
    "reflect": lambda c: c.reflect("b", "tea"),
    "document": lambda c: c.document("b", "d"),
    "documents": lambda c: c.documents("b", ["a"]),
    "forget": lambda c: c.forget("b", "d"),
    "under_way": lambda c: c.is_processing("b", OPERATION),
    "operations": lambda c: c.operations("b"),
    "retry": lambda c: c.retry("b", OPERATION),
    "version": lambda c: c.version(),
    "stats": lambda c: c.stats("b"),
    "configure": lambda c: c.configure("b", {"disposition_empathy": 1}),
}

FAULTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "400": ({"status": 400}, BackendRefused, "answered 400"),
    "401": ({"status": 401}, BackendAuthError, "check HINDSIGHT_API_KEY"),
    "403": ({"status": 403}, BackendAuthError, "answered 403"),
    "409": ({"status": 409}, BackendRefused, "answered 409"),
    "422": ({"status": 422}, BackendRefused, "answered 422"),
    "429": ({"status": 429, "retry_after": 7}, BackendUnavailable, "answered 429"),
    "500": ({"status": 500}, BackendUnavailable, "answered 500"),
    "503": ({"status": 503}, BackendUnavailable, "answered 503"),
    "cut": ({"cut": True}, BackendUnavailable, "can't be reached"),
    "drop": ({"drop": True}, BackendUnavailable, "can't be reached"),
    "garbage": ({"garbage": True}, BackendUnavailable, "something else than its API says"),
    "late": ({"delay": 30.0}, BackendUnavailable, "has not answered after 0.15 s"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_goes_wrong_with_a_call_becomes_an_error_of_ours(
    server: HindsightServer, fault: str
) -> None:
    how, kind, said = FAULTS[fault]
    run(server, keep, lambda c: c.retain("b", ITEM, document="d", operation=OPERATION))

    def failing(call: Callable[[Client], Awaitable[Any]]) -> Callable[[Client], Awaitable[Any]]:
        async def ask(client: Client) -> None:
            before = len(server.requests)
            server.fail(**how)
            with pytest.raises(kind, match=said) as caught:
                await call(client)
            while fault == "late" and len(server.requests) == before:  # sent in time, read later
                await asyncio.sleep(0.01)
            server.heal()
            # aiohttp itself repeats a GET or DELETE once whose connection was closed without a word.
            assert len(server.requests) - before <= 1 or fault == "drop"
            assert getattr(caught.value, "retry_after", None) == how.get("retry_after")

        return ask

    run(server, *map(failing, CALLS.values()), timeout=0.15 if fault == "late" else 20.0)


STRANGE = [None, [], "text", 7, {"results": None}, {"results": [{}]}, {"results": "no"}, {"detail": "x"}]


def test_json_that_is_not_what_was_promised_is_no_crash() -> None:
    with HindsightServer() as server:

        async def all_calls(client: Client) -> None:
            for body in STRANGE:
                for method in ("GET", "POST"):
                    server.route(method, "*", lambda _, body=body: body)
                for name in CALLS.keys() - {"forget", "retry", "configure"}:
                    with pytest.raises(BackendUnavailable, match="something else than its API says"):
                        await CALLS[name](client)

        run(server, all_calls)


def test_another_service_at_the_address_is_no_refusal_of_the_write() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            caller, _ = listener.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        there = SimpleNamespace(url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(BackendUnavailable, match="something else than its API says"):
            run(there, keep)  # type: ignore[arg-type]
        thread.join()


def test_nobody_at_the_address_is_told_to_who_can_start_a_server(server: HindsightServer) -> None:
    told: list[str] = []
    for how, timeout in (({"status": 503}, 20.0), ({"delay": 30.0}, 0.2)):
        server.fail(times=1, **how)
        with pytest.raises(BackendUnavailable):
            run(server, keep, timeout=timeout, unreachable=lambda: told.append("by an answer"))
    away = SimpleNamespace(url="http://127.0.0.1:9")
    with pytest.raises(BackendUnavailable, match="can't be reached"):
        run(away, keep, unreachable=lambda: told.append("by none"))  # type: ignore[arg-type]
    assert told == ["by none"]


def test_no_call_outlasts_the_hosts_deadline() -> None:
    assert Client("http://127.0.0.1:9", timeout=120.0).timeout == 55.0


def below(cls: type[Exception]) -> Iterator[type[Exception]]:
    yield cls
    for child in cls.__subclasses__():
        yield from below(child)


def made(cls: type[Exception]) -> Exception:
    """One of this class, with what its `str` and we read of it."""
    error = cls.__new__(cls, "it broke")
    values = {
        "status": 503,
        "reason": "busy",
        "body": "{}",
        "data": None,
        "headers": {"Retry-After": "3"},
        "message": "it broke",
        "request_info": SimpleNamespace(real_url="http://x"),
        "_conn_key": SimpleNamespace(host="x", port=1, ssl=True, is_ssl=True),
        "_os_error": OSError(111, "refused"),
        "_certificate_error": ssl.SSLError("bad"),
        "_path": "/x",
        "_url": "x://",
        "_description": None,
        "expected": b"a",
        "got": b"b",
        "host": "x",
        "port": 1,
    }
    for name, value in values.items():
        try:
            setattr(error, name, value)
        except AttributeError:
            continue
    return error


def test_every_error_class_of_the_sdk_is_mapped() -> None:
    from hindsight_client_api import exceptions as sdk  # takes a second

    refused = {aiohttp.InvalidURL, *below(aiohttp.InvalidURL)}
    for cls in dict.fromkeys([*below(sdk.OpenApiException), *below(aiohttp.ClientError)]):
        error = translate_error(made(cls), "http://x")
        assert type(error) is (BackendRefused if cls in refused else BackendUnavailable), cls
        if issubclass(cls, sdk.ApiException):
            assert error.retry_after == 3.0, cls  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BackendRefused),
        (401, BackendAuthError),
        (403, BackendAuthError),
        (404, BackendNotFound),
        (408, BackendUnavailable),
        (409, BackendRefused),
        (410, BackendNotFound),
        (413, BackendRefused),
        (422, BackendRefused),
        (429, BackendUnavailable),
        (500, BackendUnavailable),
        (504, BackendUnavailable),
        (0, BackendUnavailable),
        (None, BackendUnavailable),
    ],
)
def test_every_status_is_mapped(status: int | None, kind: type[Exception]) -> None:
    body = '{"detail": [{"loc": ["body", "items"], "msg": "field required"}]}'
    from hindsight_client_api.exceptions import ApiException

    error = translate_error(ApiException(status=status, reason="R", body=body), "http://x")
    assert type(error) is kind
    if status:
        assert "body.items: field required" in str(error)


def test_a_uuid_is_what_an_operation_needs(server: HindsightServer) -> None:
    assert uuid.UUID(OPERATION)
    with pytest.raises(BackendRefused, match="already in use"):
        run(
            server,
            lambda c: c.retain("b", ITEM, document="d", operation=OPERATION),
            lambda c: c.retain("other", ITEM, document="d", operation=OPERATION),
        )
