from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hermes_core import Memory, open_memory
from hermes_core.config import Credentials
from hermes_core.config.keys import SEMANTIC
from hermes_core.health.finding import Finding
from hermes_core.health.status import status_of
from hermes_core.home import HermesHome
from hermes_memory_rerank import reranker
from hermes_memory_rerank.doctor import examine_server
from tests.table import table

BEST = "The espresso machine of the office is a red Gaggia."
TALK = [
    "The espresso machine at my parents' house is a Bialetti.",
    "I cleaned the espresso machine again today.",
    BEST,
    "An espresso machine needs a descaler each month.",
    "My neighbour sold me the table for the espresso machine.",
]
QUESTION = "Which espresso machine do we have at work?"
SECRET = "sk-proj-4fK8s0Zq1LmN7pR2tUvW3xYz5AbC6dEf"
KEY_BLOCK = (
    "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEA7bq\n" * 80 + "-----END RSA PRIVATE KEY-----"
)
PATHS = {
    "cohere": ("/v2/rerank",),
    "jina": ("/v1/rerank",),
    "tei": ("/rerank",),
    "llama.cpp": ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking"),
}
MODELS = {"cohere": "rerank-v3.5", "jina": "jina-reranker-v2-base-multilingual", "tei": "", "llama.cpp": ""}
TEI_BATCH = 32


class Server:
    """A server with a model that finds `BEST` the best answer, in one of the four forms.

    It answers in the order of the scores, as they all do; an earlier llama.cpp answered in the order of the texts.
    """

    def __init__(self, form: str) -> None:
        self.form = form
        self.requests: list[dict[str, Any]] = []
        self.score: Callable[[str], Any] = lambda text: float(BEST in text or "blue" in text)
        self.change: Callable[[Any], Any] = lambda answer: answer
        self.status, self.body = 200, ""
        self.may_answer = threading.Event()
        self.may_answer.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = outer.answer(self.path, self.headers.get("Authorization", ""), body)
                outer.may_answer.wait()
                sent = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                with contextlib.suppress(BrokenPipeError):  # nobody waits any more
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(sent)))
                    self.end_headers()
                    self.wfile.write(sent)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    @property
    def sent(self) -> str:
        return json.dumps(self.requests, ensure_ascii=False)

    def answer(self, path: str, authorization: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append(body)
        if self.status != 200:
            return self.status, self.body
        if path not in PATHS[self.form]:
            return 404, {"message": "not found"}
        texts = body.get("texts" if self.form == "tei" else "documents")
        if refusal := self.refusal(authorization, body, texts):
            return refusal
        assert texts is not None
        key = "score" if self.form == "tei" else "relevance_score"
        rows = [{"index": number, key: self.score(text)} for number, text in enumerate(texts)]
        if self.form != "llama.cpp":
            rows.sort(key=lambda row: row[key], reverse=True)
        if self.form == "jina" and body.get("return_documents", True):
            rows = [{**row, "document": {"text": texts[row["index"]]}} for row in rows]
        beside: dict[str, Any] = {
            "cohere": {"id": "07734bd2", "meta": {"api_version": {"version": "2"}}},
            "jina": {"model": body.get("model"), "usage": {"total_tokens": 84}},
            "llama.cpp": {"model": body.get("model", "gpt-3.5-turbo"), "object": "list", "usage": {}},
        }.get(self.form, {})
        return 200, self.change(rows if self.form == "tei" else {**beside, "results": rows})

    def refusal(
        self, authorization: str, body: dict[str, Any], texts: list[str] | None
    ) -> tuple[int, Any] | None:
        if self.form in ("cohere", "jina"):
            if authorization != "Bearer secret":
                return 401, {"id": "1", "message": "invalid api token"} if self.form == "cohere" else {
                    "detail": "Unauthorized"
                }
            if not body.get("model"):
                return 400, {"message": "invalid request: model is required"}
        if not texts or not body.get("query"):
            return 400, {"error": {"code": 400, "message": '"documents" must be provided'}}
        if self.form == "tei" and len(texts) > TEI_BATCH:
            error = f"batch size {len(texts)} > maximum allowed batch size {TEI_BATCH}"
            return 422, {"error": error, "error_type": "Validation"}
        return None

    def close(self) -> None:
        self.may_answer.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server("tei")) as running:
        yield running


@pytest.fixture(autouse=True)
def by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEMANTIC, "off")


def opened(home: HermesHome, server: Server, **more: Any) -> Memory:
    """Open a memory that asks this server, with `TALK` in it."""
    recall = {"rerank": "http", "rerank_form": server.form, "rerank_url": server.url}
    memory = open_memory(home, config={"recall": {**recall, "rerank_model": MODELS[server.form], **more}})
    if not memory.sessions.counts()["messages"]:
        for text in TALK:
            memory.end_turn(memory.start_session(), text, "Noted.")
    return memory


def found(memory: Memory, question: str = QUESTION, **options: Any) -> list[str]:
    return [hit.text for hit in memory.sessions.past.search(question, role="user", **options)]


@table("form", list(PATHS))
def test_a_server_of_each_form_orders_a_search_and_the_recall_of_a_turn(
    form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = HermesHome(tmp_path_factory.mktemp("home"))
    Credentials(home).set("RERANK_API_KEY", "secret")
    with closing(Server(form)) as server, opened(home, server) as memory:
        assert found(memory)[0] == BEST
        turn = memory.conversation().turn(QUESTION)
        assert min(TALK, key=lambda text: turn.recall.context.find(text) % 10_000) == BEST
        assert list(turn.problems) == []
        turn.cancel()
        (ok,) = examine_server(home.path, memory.config.recall, trial=True)
        assert ok.state == "ok"
        assert len(server.requests) == 3
        assert server.requests[0]["query"] == QUESTION


@table("path", ["/v2", "/v2/", "/v2/rerank"])
def test_an_address_may_have_the_path_of_the_api(path: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = HermesHome(tmp_path_factory.mktemp("home"))
    Credentials(home).set("RERANK_API_KEY", "secret")
    with (
        closing(Server("cohere")) as server,
        opened(home, server, rerank_url=server.url + path) as memory,
    ):
        assert found(memory)[0] == BEST


def break_off(server: Server) -> None:
    server.may_answer.clear()


FAULTS: dict[str, tuple[Callable[[Server], None], str]] = {
    "down": (Server.close, "can't be reached"),
    "hangs": (break_off, "has not answered after"),
    "not a reranker": (
        lambda server: vars(server).update(
            status=501, body='{"error": {"code": 501, "message": "This server does not support reranking."}}'
        ),
        "This server does not support reranking",
    ),
    "overloaded": (
        lambda server: vars(server).update(status=429, body='{"error": "Model is overloaded"}'),
        "overloaded",
    ),
    "no JSON": (lambda server: vars(server).update(change=lambda _: "<html>"), "answered something else"),
    "a text is missing": (
        lambda server: vars(server).update(change=lambda rows: rows[1:]),
        "answered something else",
    ),
    "a text twice": (
        lambda server: vars(server).update(change=lambda rows: [rows[0], *rows[:-1]]),
        "answered something else",
    ),
    "no list": (
        lambda server: vars(server).update(change=lambda _: {"results": None}),
        "answered something else",
    ),
    "no number": (lambda server: vars(server).update(score=lambda _: "high"), "answered something else"),
    "not a number": (
        lambda server: vars(server).update(score=lambda _: float("nan")),
        "answered something else",
    ),
    "a huge integer": (
        lambda server: vars(server).update(score=lambda _: 10**400),
        "answered something else",
    ),
}


@table("fault", list(FAULTS))
def test_a_server_that_fails_is_told_and_the_search_keeps_its_order(
    fault: str, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    home = HermesHome(tmp_path_factory.mktemp("home"))
    break_it, words = FAULTS[fault]
    caplog.clear()
    with closing(Server("tei")) as server, opened(home, server, deadline=2.0) as memory:
        past = memory.sessions.past
        past.reranker, own = None, past.reranker
        before = found(memory)
        assert before[0] != BEST
        past.reranker = own
        break_it(server)
        with caplog.at_level(logging.WARNING):
            hits = past.search(QUESTION, role="user")
        assert [hit.text for hit in hits] == before
        (problem,) = past.problems_of(hits)
        assert words in problem
        assert "keeps the order of the search" in problem
        assert [words in record.getMessage() for record in caplog.records] == [True]
        asked = len(server.requests)
        turn = memory.conversation().turn(QUESTION)
        assert BEST in turn.recall.context
        assert [words in one for one in turn.problems] == [True]
        turn.cancel()
        assert any(words in one for one in memory.problems())
        assert len(server.requests) == asked  # it is not asked again at once
        (finding,) = examine_server(home.path, memory.config.recall, trial=True)
        assert finding.state == "failed"
        assert words in finding.detail


def test_a_server_that_failed_is_asked_again_after_a_while(hermes_home: HermesHome, server: Server) -> None:
    with opened(hermes_home, server) as memory:
        now = [0.0]
        server.status, server.body = 503, "busy"
        own = reranker.make_reranker(memory.config.recall, hermes_home)
        own._clock = lambda: now[0]
        memory.sessions.past.reranker = own
        found(memory)
        assert "503" in own.fault
        server.status = 200
        now[0] = reranker.RETRY_AFTER_S - 1
        assert found(memory)[0] != BEST
        now[0] += 1
        assert found(memory)[0] == BEST
        assert own.fault == ""
        own.close()


def test_no_secret_is_sent(hermes_home: HermesHome, server: Server) -> None:
    with opened(hermes_home, server) as memory:
        said = memory.start_session()
        memory.end_turn(said, f"The espresso machine's API key is {SECRET}.", "Noted.")
        memory.end_turn(said, f"The espresso machine of the shop: {KEY_BLOCK} espresso machine", "Noted.")
        found(memory, f"espresso machine {SECRET}?")
        found(
            memory, f"{KEY_BLOCK} " + "Some other words stand here. " * 40 + "Which espresso machine is it?"
        )
        assert len(server.requests) == 2
        assert "[redacted" in server.sent
        assert SECRET not in server.sent
        assert "MIIEow" not in server.sent
        assert max(len(text) for request in server.requests for text in request["texts"]) <= 800 + 20


def test_a_server_is_asked_only_if_there_is_an_order_to_find(hermes_home: HermesHome, server: Server) -> None:
    with opened(hermes_home, server) as memory:
        assert found(memory, "zzyzx") == []
        assert found(memory, "Bialetti") == [TALK[0]]
        assert memory.begin_turn(memory.start_session(), "Write a poem about rain.").context == ""
        found(memory, sort="newest")
        found(memory, "When did I first clean the espresso machine?")
        assert server.requests == []


def test_more_messages_than_a_request_takes(hermes_home: HermesHome, server: Server) -> None:
    with opened(hermes_home, server) as memory:
        said = memory.start_session()
        for number in range(40):
            memory.end_turn(said, f"The espresso machine of house {number} is off.", "Noted.")
        assert len(found(memory, limit=5)) == 5
        assert len(server.requests[0]["texts"]) == TEI_BATCH
        assert len(found(memory, limit=40)) == 40
        assert memory.sessions.past.rerank_fault == ""


def test_the_newest_statement_stays_before_the_one_that_it_changes(
    hermes_home: HermesHome, server: Server
) -> None:
    old, new = "My passport is in the blue drawer.", "My passport is in the safe now."
    with opened(hermes_home, server) as memory:
        for text in (old, "My passport photo is awful.", new):
            memory.end_turn(memory.start_session(), text, "Noted.")
        server.score = lambda text: {old: 3.0, new: 1.0}.get(text, 2.0)
        texts = found(memory, "Where is my passport?")
        assert texts[:2] == [new, old]


def test_sessions_of_programs_stay_behind(hermes_home: HermesHome, server: Server) -> None:
    with opened(hermes_home, server) as memory:
        report = memory.start_session(platform="cron")
        memory.end_turn(report, f"Report: {BEST} espresso machine", "Noted.")
        assert found(memory)[0] == BEST
        assert found(memory)[-1].startswith("Report:")


def test_the_reasons_name_the_place(hermes_home: HermesHome, server: Server) -> None:
    with opened(hermes_home, server) as memory:
        last = memory.sessions.past.search(QUESTION)[-1].message_id
        report: Any = memory.recall(QUESTION, limit=2, why=True, absent=[last])
        assert "place by recall.rerank 1" in report.results[0].why.text
        (absent,) = report.absent
        assert absent.search == "it has place 10, and 2 are returned"


@table(
    "settings, state, words",
    [
        ({"rerank": "http", "rerank_url": ""}, "failed", "recall.rerank_url is not set"),
        ({"rerank": "http", "rerank_form": "tei", "rerank_url": "host"}, "failed", "is no address"),
        (
            {"rerank": "http", "rerank_form": "cohere", "rerank_url": "https://api.cohere.com"},
            "failed",
            "recall.rerank_model is not set",
        ),
        ({"rerank_url": "http://127.0.0.1:9"}, "warning", "recall.rerank_url is set without effect"),
        ({"rerank_model": "m"}, "warning", "recall.rerank_model is set without effect"),
    ],
)
def test_settings_that_do_nothing_are_told(
    settings: dict[str, str], state: str, words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = HermesHome(tmp_path_factory.mktemp("home"))
    home.config_yaml.write_text(json.dumps({"recall": settings}))
    with open_memory(home) as memory:
        (finding,) = examine_server(home.path, memory.config.recall, trial=False)
        assert (finding.state, words in finding.detail) == (state, True)
        memory.end_turn(memory.start_session(), TALK[0], "Noted.")
        assert [words in problem for problem in memory.problems()] == [True] * (state == "failed")
    status = status_of(home)
    assert sum(words in one for one in (*status.problems, *status.warnings)) == 1


def test_a_model_that_is_none_for_this_is_told(hermes_home: HermesHome, server: Server) -> None:
    with opened(hermes_home, server) as memory:
        server.score = lambda text: -float("blue" in text)
        finding: Finding = examine_server(hermes_home.path, memory.config.recall, trial=True)[0]
        assert finding.state == "warning"
        assert "finds 'The train leaves at nine.' the better answer" in finding.detail
