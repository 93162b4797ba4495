"""The edge: what goes over the wire, and what becomes of every way in which Mem0 can fail."""

from __future__ import annotations

import contextlib
import inspect
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hermes_mem0.backend import MAX_MEMORIES, WRITE_TIMEOUT_S, Backend, sdk, translate_error
from hermes_mem0.client import Platform, Server
from hermes_mem0.oss import place_of
from hermes_mem0.settings import NAME, SETTINGS

from hermes_core import HermesError
from hermes_core.errors import BackendAuthError, BackendNotFound, BackendRefused, BackendUnavailable
from hermes_core.kit import ConfigError, Settings, load_settings, poll
from hermes_memory_testing import Raw, StandIn
from plugins.mem0.tests.conftest import Agent, Start
from plugins.mem0.tests.stand_in import KEY, Cloud, Models, OwnServer

SAID = [{"role": "user", "content": "The key hangs behind Ostrander."}]
KNOWN = str(uuid.UUID(int=7))
ABSENT = str(uuid.UUID(int=8))
CALLS: dict[str, Callable[[Backend], object]] = {
    "add": lambda b: b.add(SAID, "mel", {"hermes_id": "t1"}, infer=True),
    "search": lambda b: b.search("Where does it hang?", "mel", 5, 0.2),
    "listed": lambda b: b.listed("mel", 20),
    "stored": lambda b: b.stored("mel", "t1", SAID[0]["content"]),
    "get": lambda b: b.get(KNOWN),
    "update": lambda b: b.update(KNOWN, "The key is lost."),
    "delete": lambda b: b.delete(KNOWN),
}
FAULTS: list[tuple[dict[str, Any], type[HermesError]]] = [
    ({"status": 400}, BackendRefused),
    ({"status": 401}, BackendAuthError),
    ({"status": 403}, BackendAuthError),
    ({"status": 404}, BackendNotFound),
    ({"status": 408}, BackendUnavailable),
    ({"status": 409}, BackendRefused),
    ({"status": 413}, BackendRefused),
    ({"status": 422}, BackendRefused),
    ({"status": 429}, BackendUnavailable),
    ({"status": 500}, BackendUnavailable),
    ({"status": 502}, BackendUnavailable),
    ({"status": 503}, BackendUnavailable),
    ({"status": 504}, BackendUnavailable),
    ({"cut": True}, BackendUnavailable),
    ({"drop": True}, BackendUnavailable),
    ({"garbage": True}, BackendUnavailable),
]


def options(home: Path, **settings: Any) -> Settings:
    return load_settings(SETTINGS, home, NAME, {"MEM0_API_KEY": KEY}, settings)


@pytest.fixture
def platform(cloud: Cloud, tmp_path: Path) -> Iterator[Platform]:
    opened = Platform(options(tmp_path, api_url=cloud.url, timeout=10.0), tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def hasty_platform(cloud: Cloud, tmp_path: Path) -> Iterator[Platform]:
    opened = Platform(options(tmp_path, api_url=cloud.url, timeout=0.5), tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def own(server: OwnServer) -> Iterator[Server]:
    opened = Server(server.url, KEY, 10.0, "hermes")
    yield opened
    opened.close()


def know(service: Cloud | OwnServer) -> None:
    """Let the service hold one memory, under an id that tests know."""
    service.memories.by_id[KNOWN] = {"id": KNOWN, "memory": "Known.", "user_id": "ada", "metadata": {}}


def told(service: Cloud | OwnServer, backend: Backend, call: str) -> list[type[HermesError]]:
    """The class of what `call` raises for each fault; every one costs the service one request."""
    found = []
    for fault, _ in FAULTS:
        know(service)
        service.fail(**fault)
        before = len(service.requests)
        with pytest.raises(HermesError) as raised:
            CALLS[call](backend)
        service.heal()
        assert len(service.requests) == before + 1, fault
        found.append(raised.type)
    return found


@pytest.mark.parametrize("call", CALLS)
def test_every_call_to_the_cloud_tells_every_fault(cloud: Cloud, platform: Platform, call: str) -> None:
    assert told(cloud, platform, call) == [error for _, error in FAULTS]
    know(cloud)
    CALLS[call](platform)


@pytest.mark.parametrize("call", CALLS)
def test_every_call_to_a_server_tells_every_fault(server: OwnServer, own: Server, call: str) -> None:
    assert told(server, own, call) == [error for _, error in FAULTS]
    know(server)
    CALLS[call](own)


@pytest.mark.parametrize("url", ["localhost:8000", "http://", "ftp://x"])
def test_an_address_of_the_cloud_that_is_none_is_told_at_once(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match=r"'api_url': '.*' is no address"):
        Platform(options(tmp_path, api_url=url), tmp_path)


def test_another_api_at_the_address_of_the_cloud_is_told(tmp_path: Path) -> None:
    with StandIn() as other:
        other.route("GET", "/*", lambda request: {"hello": "world"})
        with pytest.raises(BackendUnavailable, match=r"answered something else .* is this its address"):
            Platform(options(tmp_path, api_url=other.url), tmp_path)


def test_a_redirect_of_the_cloud_is_told_with_the_address_that_it_names(
    cloud: Cloud, platform: Platform
) -> None:
    moved = Raw(headers={"Location": "https://new.example/v3"})
    cloud.route("POST", "/v3/memories/search/", lambda request: (301, moved))
    with pytest.raises(BackendUnavailable, match=r"answered 301: 'https://new.example/v3'; the address has"):
        CALLS["search"](platform)


def test_the_cloud_may_ask_for_time(cloud: Cloud, platform: Platform) -> None:
    cloud.fail(status=429, retry_after=90)
    with pytest.raises(BackendUnavailable) as told:
        CALLS["add"](platform)
    assert told.value.retry_after == 90


def test_a_server_may_ask_for_time(server: OwnServer, own: Server) -> None:
    server.fail(status=503, retry_after=7)
    with pytest.raises(BackendUnavailable) as told:
        CALLS["search"](own)
    assert told.value.retry_after == 7


def test_recall_waits_for_the_cloud_only_so_long_and_a_write_longer(
    cloud: Cloud, hasty_platform: Platform
) -> None:
    cloud.fail(delay=2.0)
    CALLS["add"](hasty_platform)
    with pytest.raises(BackendUnavailable, match="timed out"):
        CALLS["search"](hasty_platform)
    assert WRITE_TIMEOUT_S < 60
    cloud.heal()
    cloud.fail(drip=True)
    with pytest.raises(BackendUnavailable, match="timed out"):
        CALLS["search"](hasty_platform)


def test_recall_waits_for_a_server_only_so_long_and_a_write_longer(server: OwnServer) -> None:
    with contextlib.closing(Server(server.url, KEY, 0.5, "hermes")) as hasty:
        server.fail(delay=2.0)
        CALLS["add"](hasty)
        with pytest.raises(BackendUnavailable, match=r"not answered after 0\.5 s"):
            CALLS["search"](hasty)


def test_what_goes_wrong_with_the_greeting_is_told_too(cloud: Cloud, tmp_path: Path) -> None:
    for fault, error in FAULTS:
        cloud.fail(**fault)
        with pytest.raises(error):
            Platform(options(tmp_path, api_url=cloud.url), tmp_path)
        cloud.heal()


@pytest.mark.parametrize("mode", ["platform", "selfhosted"])
def test_a_backend_that_is_not_there_is_unavailable_at_once(tmp_path: Path, mode: str) -> None:
    from hermes_mem0.client import connect

    nowhere = {
        "api_url": "http://127.0.0.1:9",
        "host": "http://127.0.0.1:9" if mode == "selfhosted" else None,
    }
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match=r"127\.0\.0\.1:9.*is it running"):
        connect(options(tmp_path, mode=mode, **nowhere), tmp_path)
    assert time.monotonic() - began < 10


def test_the_address_of_something_else_is_told_as_such(cloud: Cloud) -> None:
    with pytest.raises(BackendRefused, match=r"there is no Mem0 server at .*cloud is mode platform"):
        Server(cloud.url, KEY, 1.0, "hermes")
    cloud.complaints.clear()


def test_a_wrong_key_names_the_variable(cloud: Cloud, tmp_path: Path) -> None:
    wrong = load_settings(SETTINGS, tmp_path, NAME, {"MEM0_API_KEY": "m0-wrong"}, {"api_url": cloud.url})
    with pytest.raises(BackendAuthError, match="check MEM0_API_KEY") as told:
        Platform(wrong, tmp_path)
    assert "m0-wrong" not in str(told.value)


def test_every_error_class_of_the_sdk_has_a_meaning(tmp_path: Path) -> None:
    sdk(
        load_settings(SETTINGS, tmp_path, NAME, {}, {}), tmp_path
    )  # imported plainly, it would write to ~/.mem0
    from mem0 import exceptions

    meant = {
        "AuthenticationError": BackendAuthError,
        "CacheError": BackendUnavailable,
        "ConfigurationError": BackendRefused,
        "DatabaseError": BackendUnavailable,
        "DependencyError": BackendRefused,
        "EmbeddingError": BackendUnavailable,
        "LLMError": BackendUnavailable,
        "MemoryCorruptionError": BackendUnavailable,
        "MemoryError": BackendUnavailable,
        "MemoryNotFoundError": BackendNotFound,
        "MemoryQuotaExceededError": BackendRefused,
        "NetworkError": BackendUnavailable,
        "RateLimitError": BackendUnavailable,
        "ValidationError": BackendRefused,
        "VectorSearchError": BackendUnavailable,
        "VectorStoreError": BackendUnavailable,
    }
    classes = [c for _, c in inspect.getmembers(exceptions, inspect.isclass)]
    errors = {c.__name__: c for c in classes if issubclass(c, exceptions.MemoryError)}
    found = {name: type(translate_error(cls("no", "E1"), "Mem0")) for name, cls in errors.items()}
    assert found == meant


def test_what_the_cloud_is_sent(cloud: Cloud, platform: Platform) -> None:
    platform.add(SAID, "mel", {"hermes_id": "t1", "source": "turn"}, infer=True)
    (found,) = platform.search("Where does it hang?", "mel", 5, 0.2, rerank=True)
    assert (found.text, found.user, found.key) == (SAID[0]["content"], "mel", "t1")
    assert [one.id for one in platform.stored("mel", "t1", "")] == [found.id]
    assert platform.stored("mel", "t2", "") == platform.listed("bob", 5) == []
    platform.update(found.id, "The key is lost.")
    assert platform.get(found.id).text == "The key is lost."
    platform.delete(found.id)
    with pytest.raises(BackendNotFound):
        platform.get(found.id)
    _, add, search, lookup, *_ = cloud.requests
    assert add.json == {
        "messages": SAID,
        "user_id": "mel",
        "agent_id": "hermes",
        "infer": True,
        "metadata": {"hermes_id": "t1", "source": "turn"},
    }
    assert (search.json["filters"], search.json["rerank"]) == ({"user_id": "mel"}, True)
    assert lookup.json == {"filters": {"AND": [{"user_id": "mel"}, {"metadata": {"hermes_id": "t1"}}]}}
    assert add.headers["x-mem0-client"].startswith("mem0-python/2.")


def test_a_long_list_comes_in_pages(cloud: Cloud, platform: Platform) -> None:
    for number in range(230):
        cloud.memories.add({"messages": [{"role": "user", "content": f"Fact {number}"}], "user_id": "mel"})
    assert len(platform.listed("mel", 1000)) == 230
    assert len(platform.listed("mel", 150)) == 150


def test_what_a_server_is_sent(server: OwnServer, own: Server) -> None:
    (added,) = own.add(SAID, "mel", {"hermes_id": "t1"}, infer=False)
    (found,) = own.search("Where does it hang?", "mel", 5, 0.2)
    assert (found.id, found.key) == (added, "t1")
    assert [one.id for one in own.stored("mel", "t1", SAID[0]["content"])] == [added]
    assert [one.id for one in own.stored("mel", "t1", "")] == [added]
    assert own.stored("bob", "t1", SAID[0]["content"]) == []
    own.update(added, "The key is lost.")
    assert own.get(added).text == "The key is lost."
    own.delete(added)
    for gone in (own.get, own.delete):
        with pytest.raises(BackendNotFound):
            gone(added)
    assert {request.headers["x-api-key"] for request in server.requests} == {KEY}


def test_a_server_without_keys_is_sent_none() -> None:
    with OwnServer(key="") as server:
        Server(server.url, "", 1.0, "hermes").close()
    assert "x-api-key" not in server.requests[0].headers


@pytest.mark.parametrize("score", [0.19, 0.2, None])
def test_what_scores_below_the_floor_is_left_out_and_what_has_no_score_is_not(score: float | None) -> None:
    from hermes_mem0.backend import above, note

    found = above(0.2, [note({"id": "1", "memory": "x", "score": score})])
    assert len(found) == (0 if score == 0.19 else 1)


@pytest.mark.parametrize("answer", [None, "no", {"message": "ok"}, {"results": [{"memory": "x"}]}, [7]])
def test_an_answer_of_another_form_is_no_empty_one(answer: Any) -> None:
    from hermes_mem0.backend import notes

    with pytest.raises(BackendUnavailable, match="something else than its API"):
        notes(answer)


@pytest.mark.parametrize("answer", [[], "pong", 7, None])
def test_another_service_at_the_clouds_address_is_told_in_a_sentence(
    cloud: Cloud, tmp_path: Path, answer: Any
) -> None:
    cloud.route("GET", "/v1/ping/", lambda _: answer)
    with pytest.raises(BackendUnavailable, match="something else than its API"):
        Platform(options(tmp_path, api_url=cloud.url), tmp_path)


# ----------------------------------------------------------------------------------------------------- in this process


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"status": 400}, BackendRefused),
        ({"status": 401}, BackendAuthError),
        ({"status": 403}, BackendAuthError),
        ({"status": 404}, BackendNotFound),
        ({"status": 429}, BackendUnavailable),
        ({"status": 500}, BackendUnavailable),
        ({"drop": True}, BackendUnavailable),
        ({"cut": True}, BackendUnavailable),
    ],
    ids=str,
)
def test_what_the_embedder_does_is_told(
    in_process: Agent, models: Models, fault: dict[str, Any], error: type[HermesError]
) -> None:
    models.fail(**fault)
    for call in ("add", "search"):
        with pytest.raises(error, match=models.url):
            CALLS[call](in_process.provider.client)


def test_what_an_embedder_does_not_say_is_told(in_process: Agent, models: Models) -> None:
    models.fail(garbage=True)
    with pytest.raises(BackendUnavailable, match=r"the embedder .* answered something else"):
        CALLS["search"](in_process.provider.client)


def test_a_page_at_the_embedders_address_is_told(in_process: Agent, models: Models) -> None:
    models.route(
        "POST", "/v1/embeddings", lambda _: Raw(b"<html>hello</html>", {"Content-Type": "text/html"})
    )
    with pytest.raises(BackendUnavailable, match=r"the embedder .* answered something else"):
        CALLS["search"](in_process.provider.client)


def test_the_embedder_may_ask_for_time_and_is_asked_once(in_process: Agent, models: Models) -> None:
    before = len(models.requests)
    models.fail(status=429, retry_after=33)
    with pytest.raises(BackendUnavailable) as told:
        CALLS["search"](in_process.provider.client)
    assert told.value.retry_after == 33
    assert len(models.requests) == before + 1


def test_an_embedder_that_hangs_is_waited_for_only_so_long(start: Start, models: Models) -> None:
    agent = start(mode="oss", embedder="openai", embedder_url=f"{models.url}/v1", timeout=0.4)
    before = len(models.requests)
    models.fail(delay=30.0)
    began = time.monotonic()
    with pytest.raises(BackendUnavailable):
        CALLS["search"](agent.provider.client)
    assert time.monotonic() - began < 10
    assert poll(lambda: len(models.requests) == before + 1, 30, 0.01)  # sent in time, perhaps read later


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_language_model_that_fails_does_not_look_like_one_that_found_nothing(
    start: Start, models: Models, status: int
) -> None:
    url = f"{models.url}/v1"
    agent = start(mode="oss", embedder="openai", embedder_url=url, llm="openai", llm_url=url)
    models.fail("POST", "/v1/chat/completions", status=status)
    with pytest.raises(BackendAuthError if status == 401 else BackendUnavailable):
        agent.say("The key hangs behind Ostrander.")
    assert agent.remembered() == []


def test_a_memory_that_is_not_there_is_not_found(in_process: Agent) -> None:
    for call in ("get", "update", "delete"):
        with pytest.raises(BackendNotFound):
            CALLS[call](in_process.provider.client)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://me:geheim@db:5433/mem", "postgresql://db:5433/mem"),
        ("postgresql://me:ge?hei#m[@db/mem?sslmode=require", "postgresql://db/mem"),
        ("postgresql://me:geheim@db1:5432,db2:5432/mem", "postgresql://db1:5432,db2:5432/mem"),
        ("postgresql:///mem?host=db&password=geheim", "postgresql://localhost/mem"),
        ("postgresql://me@db/mem?password=geheim", "postgresql://db/mem"),
        ("postgres://me@/mem?password=ge@heim", "postgresql://localhost/mem"),
        ("host=db user=me password='geheim' dbname = mem", "postgresql://db/mem"),
    ],
)
def test_a_databases_password_is_not_part_of_its_place(address: str, shown: str) -> None:
    store = {"provider": "pgvector", "config": {"connection_string": address}}
    assert place_of(store) == shown


@pytest.mark.parametrize(
    "address",
    [
        "postgres//me:geheim@db/mem?sslmode=require",
        "postgresql://me:gehe/im@db/mem",
        "postgresql://me:a@geheim@db",
        "geheim",
    ],
)
def test_what_is_no_address_of_a_database_is_refused_without_its_words(address: str) -> None:
    store = {"provider": "pgvector", "config": {"connection_string": address}}
    with pytest.raises(ConfigError) as caught:
        place_of(store)
    assert "gehe" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", "../entities", "none"])
def test_what_is_no_id_reaches_no_other_path(
    cloud: Cloud, platform: Platform, server: OwnServer, own: Server, name: str
) -> None:
    for service, backend in ((cloud, platform), (server, own)):
        asked = len(service.requests)
        for call in (backend.delete, backend.get, lambda one, to=backend: to.update(one, "New.")):
            with pytest.raises(BackendNotFound):
                call(name)
        assert len(service.requests) == asked


def test_a_list_whose_next_page_is_empty_ends(cloud: Cloud, platform: Platform) -> None:
    cloud.route(
        "POST", "/v3/memories/", lambda _: {"count": 9, "next": "more", "previous": None, "results": []}
    )
    assert platform.listed("mel", 20) == []
    cloud.route("POST", "/v3/memories/", lambda _: [])
    assert platform.listed("mel", 20) == []


def test_what_came_from_a_turn_is_found_among_any_number_of_memories(server: OwnServer, own: Server) -> None:
    for number in range(MAX_MEMORIES):
        server.memories.add({"messages": [{"role": "user", "content": f"Fact {number}."}], "user_id": "mel"})
    own.add(SAID, "mel", {"hermes_id": "t1"}, infer=False)
    assert [one.text for one in own.stored("mel", "t1", "")] == [SAID[0]["content"]]
