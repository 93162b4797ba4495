from __future__ import annotations

import base64
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hermes_core import Memory, open_memory
from hermes_core.config import set_value
from hermes_core.config.credentials import Credentials
from hermes_core.config.keys import SEMANTIC
from hermes_core.errors import HermesError
from hermes_core.health.databases import examine_vectors, vector_state
from hermes_core.health.status import status_of
from hermes_core.home import HermesHome
from hermes_core.sessions.session_store import SessionStore
from hermes_memory_semantic import dense, embeddings, vectors
from hermes_memory_semantic.embeddings import EmbeddingServer, HttpEncoder
from plugins.semantic.tests.conftest import OpenStore

pytest.importorskip("numpy")

SUBJECTS = (("dog", "puppy", "beagle"), ("money", "rent", "budget"), ("rain", "weather", "storm"))
TALK = [
    "We adopted a puppy.",
    "The rent is due on Monday.",
    "A storm took the roof.",
    "我们领养了一只小狗 puppy",
]
SECRET = "sk-proj-4fK8s0Zq1LmN7pR2tUvW3xYz5AbC6dEf"


class Server:
    """A server with OpenAI's /embeddings: a text's vector names its subjects."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.statuses: list[int] = []
        self.dimension = 8
        self.answer: Callable[[list[str]], Any] = self.embed
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(body)
                outer.keys.append(self.headers.get("Authorization", ""))
                status = outer.statuses.pop(0) if outer.statuses else 200
                known = self.path == "/v1/embeddings"
                sent = json.dumps(
                    outer.answer(body["input"]) if status == 200 else {"error": "busy"}
                ).encode()
                self.send_response(status if known else 404)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    @property
    def texts(self) -> list[str]:
        return [text for request in self.requests for text in request["input"]]

    def embed(self, texts: list[str]) -> Any:
        rows = [
            [float(any(word in text.lower() for word in words)) for words in SUBJECTS]
            + [0.1] * (self.dimension - len(SUBJECTS))
            for text in texts
        ]
        data = [{"index": number, "embedding": row} for number, row in enumerate(rows)]
        return {"data": data[::-1], "model": "subjects"}

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server()) as running:
        yield running


def opened(open_store: OpenStore, server: Server, model: str = "subjects", key: str = "") -> SessionStore:
    return open_store(EmbeddingServer(server.url, model, key))


def filled(open_store: OpenStore, server: Server, **options: str) -> SessionStore:
    db = opened(open_store, server, **options)
    db.create_session("s1")
    for number, text in enumerate(TALK):
        messages = [{"role": "user", "content": text}, {"role": "assistant", "content": "I see."}]
        db.append_turn("s1", messages, f"s1-{number}", number + 1)
    assert db.past.vectors is not None
    db.past.vectors.build()
    return db


def rows(db: SessionStore, sql: str) -> list[Any]:
    return [row[0] for row in db.database.execute(sql)]


def models(db: SessionStore) -> list[Any]:
    """The models whose vectors are stored."""
    assert rows(db, "SELECT count(*) FROM vectors") != [0]
    if not db.database.shared:
        return rows(db, "SELECT DISTINCT model FROM vectors")
    return rows(db, "SELECT model FROM vector_state")


def test_a_message_is_found_by_vectors_of_a_server(open_store: OpenStore, server: Server) -> None:
    with closing(filled(open_store, server, key="secret")) as db:
        assert {hit.text for hit in db.past.search("who has a dog?")[:2]} == {TALK[0], TALK[3]}
        assert db.past.search("the budget")[0].text == TALK[1]
        assert db.past.vector_fault == ""
        assert {request["model"] for request in server.requests} == {"subjects"}
        assert set(server.keys) == {"Bearer secret"}
        assert max(len(request["input"]) for request in server.requests) <= embeddings.BATCH


def test_a_server_that_is_down_is_named_and_words_answer(open_store: OpenStore, server: Server) -> None:
    with closing(filled(open_store, server)) as db:
        server.statuses = [503] * 3
        assert db.past.search("who adopted a dog?")[0].text == TALK[0]
        assert "503" in db.past.vector_fault
        asked = len(server.requests)
        assert db.past.search("who adopted a dog?")[0].text == TALK[0]
        assert len(server.requests) == asked  # it is not asked again at once
        assert db.past.vectors is not None
        server.statuses = []
        assert db.past.vectors.works()
        assert db.past.vector_fault == ""


def test_a_busy_server_is_asked_again(open_store: OpenStore, server: Server) -> None:
    server.statuses = [429, 503]
    with closing(filled(open_store, server)) as db:
        assert db.past.vector_fault == ""
        assert db.past.search("the budget")[0].text == TALK[1]


def test_missing_vectors_are_made_when_the_server_is_back(
    open_store: OpenStore, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "RETRY_AFTER_S", 0.05)
    server.statuses = [400] * 2
    with closing(opened(open_store, server)) as db:
        db.create_session("s1")
        db.append_message("s1", "user", TALK[0])
        deadline = time.monotonic() + 20
        assert db.past.vectors is not None
        while db.past.vectors.missing() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert db.past.vectors.missing() == 0
        assert db.past.vector_fault == ""


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"data": []},
        {"data": [{"index": 0, "embedding": "text"}]},
        {"data": [{"index": 0, "embedding": [math.inf]}]},
        {"data": [{"index": 7, "embedding": [1.0]}]},
        {"data": [{"index": [], "embedding": [1.0]}]},
        {"data": [{"index": {}, "embedding": [1.0]}]},
        {"data": [{"index": "0", "embedding": [1.0]}]},
        {"data": [{"index": None, "embedding": [1.0]}]},
        {"data": [{"index": 10**400, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [10**400]}]},
        {"data": [{"index": 0, "embedding": [-(10**400), 1.0]}]},
        {"data": [{"index": 0, "embedding": [math.nan]}]},
        {"data": [{"index": 0, "embedding": [True]}]},
        {"data": [{"index": 0, "embedding": [[1.0]]}]},
        {"data": [{"index": 0, "embedding": []}]},
        {"data": {"0": [1.0]}},
        {"data": [None]},
        [],
        None,
        7,
    ],
)
def test_an_answer_that_holds_no_vectors_is_a_fault(server: Server, answer: Any) -> None:
    server.answer = lambda _: answer
    with pytest.raises(HermesError, match="embeddings"):
        HttpEncoder(EmbeddingServer(server.url, "m")).encode_question("dog")


def test_secrets_are_redacted_before_a_text_is_sent(open_store: OpenStore, server: Server) -> None:
    with closing(filled(open_store, server)) as db:
        db.append_message("s1", "user", f"My key is {SECRET}, and the dog is fine.")
        assert db.past.vectors is not None
        db.past.vectors.build()
        db.past.search(f"which dog has {SECRET}?")
    assert any("the dog is fine" in text for text in server.texts)
    assert not any(SECRET in text for text in server.texts)


ODD_ANSWERS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "index": lambda items: [{**item, "index": []} for item in items],
    "same index": lambda items: [{**item, "index": 1} for item in items],
    "huge number": lambda items: [{**item, "embedding": [10**400, *item["embedding"][1:]]} for item in items],
    "two dimensions": lambda items: [*items[1:], {**items[0], "embedding": [1.0] * (1 + len(items))}],
}


@pytest.mark.parametrize("change", ODD_ANSWERS.values(), ids=ODD_ANSWERS)
def test_an_odd_answer_is_a_problem_and_no_exception(
    hermes_home: HermesHome,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[list[dict[str, Any]]], Any],
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")
    config = {"recall": {"embeddings": "http", "embeddings_url": server.url, "embeddings_model": "subjects"}}
    with open_memory(hermes_home, config=config) as memory:
        said = memory.start_session()
        for text in TALK:
            memory.end_turn(said, text, "noted")
        index = memory.sessions.past.vectors
        assert index is not None
        index.build()
        server.answer = lambda texts: {"data": change(server.embed(texts)["data"])}
        turn = memory.begin_turn(memory.start_session(), "when was the puppy adopted?")
        assert memory.recall("who adopted a puppy?").results
        memory.end_turn(said, "The beagle sleeps.", "I see.")
        deadline = time.monotonic() + 20
        while not index.fault and time.monotonic() < deadline:
            time.sleep(0.02)
        assert "search by meaning does not work" in index.fault
        if change is not ODD_ANSWERS["two dimensions"]:  # which an answer with a single vector does not have
            assert any("search by meaning does not work" in problem for problem in turn.problems)
        assert index._thread is not None
        assert index._thread.is_alive()
        server.answer = server.embed
        assert index.works()
        index.build()
        assert index.missing() == 0


@pytest.mark.parametrize("number", [1e300, 1e39, 1e-60, 5, 0.0])
def test_numbers_of_any_size_make_a_vector(server: Server, number: float) -> None:
    server.answer = lambda _: {"data": [{"embedding": [number, number]}]}
    vector = HttpEncoder(EmbeddingServer(server.url, "m")).encode_question("dog").whole
    assert vector.tolist() == pytest.approx([0.5**0.5 * bool(number)] * 2)


@pytest.mark.filterwarnings("error")
def test_a_vector_of_zeros_is_near_to_nothing(open_store: OpenStore, server: Server) -> None:
    with closing(filled(open_store, server)) as db:
        assert db.past.vectors is not None
        server.answer = lambda texts: {"data": [{"embedding": [0.0] * server.dimension} for _ in texts]}
        db.append_message("s1", "user", "zeros")
        db.past.vectors.build()
        assert db.past.search("who adopted a dog?")[0].text == TALK[0]
        server.answer = server.embed
        assert {hit.text for hit in db.past.search("who has a dog?")[:2]} == {TALK[0], TALK[3]}


def test_a_server_that_makes_vectors_of_two_dimensions_is_a_fault(
    open_store: OpenStore, server: Server
) -> None:
    def embed_in_turn(texts: list[str]) -> Any:
        server.dimension = 12 if texts == ["who adopted a dog?"] else 8
        return server.embed(texts)

    with closing(filled(open_store, server)) as db:
        stored = rows(db, "SELECT count(*) FROM vectors")
        server.answer = embed_in_turn
        assert db.past.search("who adopted a dog?")[0].text == TALK[0]
        assert "12 numbers and of 8 numbers" in db.past.vector_fault
        assert rows(db, "SELECT count(*) FROM vectors") == stored


def test_vectors_of_messages_do_not_end_the_wait_after_a_late_question(
    open_store: OpenStore, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = threading.Event()

    def embed_late(texts: list[str]) -> Any:
        if len(texts) == 1 and texts[0].startswith("who"):
            late.wait(20)
        return server.embed(texts)

    def questions() -> int:
        return sum(text.startswith("who") for text in server.texts)

    with closing(filled(open_store, server)) as db:
        index = db.past.vectors
        assert index is not None
        monkeypatch.setattr(embeddings, "QUESTION_TIMEOUT_S", 0.2)
        server.answer = embed_late
        for number in range(3):
            assert db.past.search("who adopted a dog?")[0].text == TALK[0]
            assert "not answered" in db.past.vector_fault
            db.append_turn(
                "s1", [{"role": "user", "content": f"It is {number}."}], f"more-{number}", 9 + number
            )
            index.build()
            assert index.missing() == 0
        assert questions() == 1
        late.set()
        monkeypatch.setattr(embeddings, "QUESTION_TIMEOUT_S", 3.0)
        assert index.works()
        assert {hit.text for hit in db.past.search("who has a dog?")[:2]} == {TALK[0], TALK[3]}
        assert db.past.vector_fault == ""


def private_key() -> list[str]:
    lines = [base64.b64encode(hashlib.sha384(bytes([number])).digest()).decode() for number in range(40)]
    return ["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"]


@pytest.mark.parametrize(
    "secret",
    ["\n".join(private_key()), "x " * 177 + "DB_PASSWORD = hunter2secretpw"],
    ids=["private key", "name and password in two pieces"],
)
def test_no_part_of_a_secret_is_sent_by_itself(open_store: OpenStore, server: Server, secret: str) -> None:
    talk = f"Keep this for the deployment:\n{secret}\nThe dog is fine, thanks."
    with closing(filled(open_store, server)) as db:
        assert db.past.vectors is not None
        for shift in range(0, 120, 20):
            db.append_message("s1", "user", "a " * shift + talk)
        db.append_message("s1", "user", f"{talk}\n" + "It rained. " * 200)
        db.past.vectors.build()
        db.past.search(f"Is the dog fine? {talk} {'and so on ' * 100} Is the dog still fine?")
        db.past.search(f"{'a ' * 300}{talk} who has a dog?")
    assert any("The dog is fine" in text for text in server.texts)
    assert any("[redacted:" in text for text in server.texts)
    for part in (*private_key()[1:-1], "hunter2secretpw"):
        assert not any(part[:40] in text for text in server.texts)


def test_the_pieces_of_a_redacted_text_name_their_place_in_the_stored_text() -> None:
    key = "\n".join(private_key())
    text = f"We deploy on Fridays. {SECRET} is old.\n{key}\nThe dog is fine. {'It rained. ' * 20}{SECRET}"
    pieces = embeddings.redacted_pieces(text)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == len(text)
    assert all(first < last for first, last, _ in pieces)
    for sentence in ("We deploy on Fridays.", "The dog is fine."):
        (place,) = [(first, last) for first, last, sent in pieces if sentence in sent]
        assert sentence in text[slice(*place)]
    assert embeddings.redacted_pieces(TALK[0]) == [(0, len(TALK[0]), TALK[0])]


def test_another_model_makes_all_vectors_anew(open_store: OpenStore, server: Server) -> None:
    with closing(filled(open_store, server)) as db:
        first = models(db)
    for model in ("other", "subjects"):
        with closing(opened(open_store, server, model)) as db:
            assert db.past.vectors is not None
            if db.database.shared:  # other machines may have the model before
                with pytest.raises(HermesError, match="sessions rebuild"):
                    db.past.vectors.build()
                db.past.vectors.forget()
            db.past.vectors.build()
            assert len(models(db)) == 1
            assert (models(db) == first) == (model == "subjects")
            assert db.past.vectors.missing() == 0
            assert db.past.search("the budget")[0].text == TALK[1]


def test_a_model_that_changes_its_dimension_makes_all_vectors_anew(
    open_store: OpenStore, server: Server
) -> None:
    with closing(filled(open_store, server)) as db:
        server.dimension = 12
        assert db.past.search("who adopted a dog?")[0].text == TALK[0]  # by words meanwhile
        assert db.past.vectors is not None
        if db.database.shared:  # other machines may have a server with the model before
            assert "have 8 numbers, not 12; give all machines" in db.past.vector_fault
            assert not db.past.vectors.works()
            requests = len(server.requests)
            with pytest.raises(HermesError, match="sessions rebuild"):
                db.past.vectors.build()
            assert len(server.requests) == requests  # no text is sent in vain
            db.past.vectors.forget()
        db.past.vectors.build()
        assert db.past.vector_fault == ""
        by_server = db.past.vectors.description().startswith("pgvector")
        lengths = (
            "SELECT public.vector_dims(own) FROM vectors" if by_server else "SELECT length(own) FROM vectors"
        )
        assert set(rows(db, lengths)) == {12}
        assert db.past.search("the budget")[0].text == TALK[1]


def test_a_vector_of_zeros_of_a_question_is_a_fault(open_store: OpenStore, server: Server) -> None:
    db = filled(open_store, server)
    server.answer = lambda texts: {"data": [{"index": 0, "embedding": [0.0] * 8} for _ in texts]}
    nothing = db.past.search("beagle")
    assert nothing == []
    assert ["zeros" in problem for problem in db.past.problems_of(nothing)] == [True]


def test_the_memory_says_when_the_server_does_not_answer(
    hermes_home: HermesHome, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")
    set_value(hermes_home, "recall.embeddings", "http")
    with open_memory(hermes_home) as memory:
        assert any("recall.embeddings_url is not set" in problem for problem in memory.problems())
        assert vector_state(memory) == "does not work"
    set_value(hermes_home, "recall.embeddings_url", server.url)
    set_value(hermes_home, "recall.embeddings_model", "subjects")
    Credentials(hermes_home).set("EMBEDDINGS_API_KEY", "from-env-file")
    with open_memory(hermes_home) as memory:
        said = memory.start_session()
        memory.end_turn(said, TALK[0], "noted")
        assert memory.sessions.past.vectors is not None
        memory.sessions.past.vectors.build()
        parts = ["on by subjects", memory.sessions.past.vectors.description()]  # the second only on a server
        assert vector_state(memory) == ", ".join(filter(None, parts))
        assert examine_vectors(memory)[0].state == "ok"
        assert server.keys[-1] == "Bearer from-env-file"
        server.statuses = [500] * 9
        report = memory.recall("who adopted a puppy?")
        assert any(hit.text == TALK[0] for hit in report.results)
        assert any("search by meaning does not work" in problem for problem in report.problems)
        answer = json.loads(memory.call_tool(memory.start_session(), "session_search", {"query": "puppy"}))
        assert answer["count"] == 1
        assert "by words only" in answer["warning"]
        assert examine_vectors(memory)[0].state != "ok"


def test_a_machine_with_another_model_says_what_to_do(
    postgres_url: str, postgres_schema: str, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")

    def open_machine(name: str, model: str, sessions: str = "auto") -> Memory:
        recall = {"embeddings": "http", "embeddings_url": server.url, "embeddings_model": model}
        storage = {"url": postgres_url, "schema": postgres_schema}
        config = {"recall": {**recall, "sessions": sessions}, "storage": storage}
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "config.yaml").write_text(json.dumps(config))
        return open_memory(tmp_path / name)

    with open_machine("one", "subjects") as one:
        assert one.sessions.past.vectors is not None
        one.end_turn(one.start_session("s1"), TALK[0], "noted")
        one.sessions.past.vectors.build()
        says = f"made by 'http subjects {server.url}', not by 'http other {server.url}'; give all machines"
        for sessions in ("auto", "on_request"):
            with open_machine("two", "other", sessions) as two:
                turn = two.conversation("s2").turn("who adopted a beagle?")
                turn.finish("I don't know.")
                assert [says in problem for problem in turn.problems] == [True]
                status = status_of(two.home)
                assert (
                    status.sessions["by_meaning"] == "by words only, because another model made the vectors"
                )
                assert any(says in problem for problem in status.problems)
                (finding,) = examine_vectors(two)
                assert finding.state == "failed"
                assert says in finding.detail
                answer = json.loads(two.call_tool(two.start_session(), "session_search", {"query": "puppy"}))
                assert says in answer["warning"]
        assert models(one.sessions) == [f"http subjects {server.url}"]
        assert one.problems() == []


def test_an_unasked_turn_beside_a_server_is_judged_by_words(
    hermes_home: HermesHome, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEMANTIC, "auto")
    config = {"recall": {"embeddings": "http", "embeddings_url": server.url, "embeddings_model": "subjects"}}
    with open_memory(hermes_home, config=config) as memory:
        said = memory.start_session()
        for number in range(20):
            memory.end_turn(said, f"{TALK[number and 1 + number % 2]} It was number {number}.", "noted")
        assert memory.sessions.past.vectors is not None
        memory.sessions.past.vectors.build()
        session = memory.start_session()
        assert memory.begin_turn(session, "Write a poem about a storm of fish.").context == ""
        assert "puppy" in memory.begin_turn(session, "when was the puppy adopted?").context


def test_the_local_model_takes_over_again(open_store: OpenStore, server: Server) -> None:
    if not dense.installed():
        pytest.skip("needs the local model")
    filled(open_store, server).close()
    with closing(open_store()) as db:
        assert db.past.vectors is not None
        assert db.past.vectors.missing() == 2 * len(TALK)
        db.past.vectors.forget()
        db.past.vectors.build()
        assert models(db) == [dense.MODEL]
        assert db.past.search("a new dog")[0].text in (TALK[0], TALK[3])
