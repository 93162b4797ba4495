from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from email.utils import formatdate
from typing import Any

import pytest

from hermes_core.errors import ConfigError, ContextOverflow, ModelRefused, ModelUnavailable
from hermes_memory_agent import ModelSettings, OpenAIModel
from hermes_memory_agent.cancel import Cancel, Cancelled
from hermes_memory_testing.model_server import ModelServer, Reply, Script, request_fault

HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}


@contextmanager
def endless(head: str) -> Iterator[tuple[OpenAIModel, list[int]]]:
    """A server whose answer begins so and never ends, and how many bytes it got rid of."""
    sent = [0]

    def answer() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.settimeout(2)
            connection.recv(65536)
            connection.sendall(f'HTTP/1.1 {head}\r\nconnection: close\r\n\r\n{{"error": "'.encode())
            while sent[0] < 50_000_000:
                sent[0] += connection.send(b"No. " * 10_000)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer)
        thread.start()
        model = OpenAIModel(
            ModelSettings(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "m", retries=0)
        )
        yield model, sent
        model.close()
        thread.join()


@contextmanager
def unended(*events: str, alive: bool) -> Iterator[OpenAIModel]:
    """A server that sends these events and no end: it stays and says that it is alive, or hangs up."""
    over = threading.Event()

    def answer() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            while not connection.recv(65536).endswith(b"}"):  # what is left unread would break the connection
                pass
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
            connection.sendall(b"transfer-encoding: chunked\r\n\r\n")
            for event in [*events, *[": alive"] * 1000 * alive]:
                connection.sendall(f"{len(event) + 2:x}\r\n{event}\n\n\r\n".encode())
                over.wait(0.02 if event[0] == ":" else 0)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer)
        thread.start()
        model = OpenAIModel(
            ModelSettings(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "m", retries=0)
        )
        yield model
        model.close()
        over.set()
        thread.join()


@contextmanager
def accepted(listening: socket.socket) -> Iterator[socket.socket]:
    """The next connection, whose request has come."""
    connection, _ = listening.accept()
    with connection:
        connection.settimeout(20)
        while not connection.recv(65536).endswith(b"}"):
            pass
        yield connection


def stopped(model: OpenAIModel, cancel: Cancel) -> None:
    with pytest.raises(Cancelled):
        ask(model, cancel=cancel)


def event(delta: str, finish: str = "null") -> str:
    return f'data: {{"choices": [{{"index": 0, "delta": {delta}, "finish_reason": {finish}}}]}}'


@contextmanager
def serving(*script: Script, **settings: Any) -> Iterator[tuple[ModelServer, OpenAIModel]]:
    with ModelServer(script) as server:
        model = OpenAIModel(ModelSettings(server.base_url, "scripted", **{"pause": 0.001, **settings}))
        yield server, model
        model.close()


def ask(
    model: OpenAIModel,
    *,
    on_text: Callable[[str], object] = len,
    tools: Any = (),
    cancel: Cancel | None = None,
) -> Any:
    return model.complete(HELLO, tools, on_text=lambda text: void(on_text(text)), cancel=cancel or Cancel())


def void(_: object) -> None:
    return None


def test_text_is_heard_as_it_comes_and_comes_back_whole() -> None:
    heard: list[str] = []
    with serving(Reply("Good morning.", chunk=4)) as (_, model):
        answer = ask(model, on_text=heard.append)
    assert heard == ["Good", " mor", "ning", "."]
    assert (answer.text, answer.finish) == ("Good morning.", "stop")
    assert answer.usage.prompt > 0
    assert answer.usage.completion > 0


def test_several_tool_calls_of_one_answer_arrive_whole_and_in_order() -> None:
    reply = Reply("Let me look.", calls=[("look", {"at": "a"}), ("look", '{"at": broken')])
    with serving(reply) as (server, model):
        answer = ask(model, tools=[TOOL])
    assert [call.arguments for call in answer.calls] == ['{"at": "a"}', '{"at": broken']
    assert len({call.id for call in answer.calls}) == 2
    assert answer.message()["tool_calls"][0]["function"]["name"] == "look"
    assert server.requests[0]["tools"] == [{"type": "function", "function": TOOL}]


def test_only_what_the_api_knows_is_sent() -> None:
    with serving(Reply("Hi")) as (server, model):
        messages = [{**HELLO[0], "ref": "r1", "timestamp": 3.0, "reasoning": "x", "speaker": "Ann"}]
        model.complete(messages, (), on_text=len, cancel=Cancel())  # type: ignore[arg-type]
    assert server.requests[0]["messages"] == HELLO
    assert "tools" not in server.requests[0]


def test_a_temperature_is_sent_until_the_server_takes_none() -> None:
    def refusing(request: dict[str, Any]) -> Reply:
        return (
            Reply(status=400, error="'temperature' is unknown") if "temperature" in request else Reply("Hi")
        )

    with serving(Reply("Hi"), refusing, refusing, refusing) as (server, model):
        for _ in range(3):
            assert model.at(0.1).complete(HELLO, (), on_text=len, cancel=Cancel()).text == "Hi"  # type: ignore[arg-type]
    assert [request.get("temperature") for request in server.requests] == [0.1, 0.1, None, None]


def test_a_server_that_does_not_count_usage_when_asked_is_asked_without() -> None:
    def refusing(request: dict[str, Any]) -> Reply:
        unknown = "stream_options" in request
        return (
            Reply(status=422, error="stream_options: extra inputs are not permitted")
            if unknown
            else Reply("Hi")
        )

    with serving(refusing) as (server, model):
        assert [ask(model).text for _ in range(2)] == ["Hi", "Hi"]
    assert ["stream_options" in request for request in server.requests] == [True, False, False]


def test_a_refusal_for_another_reason_is_told_and_not_tried_twice() -> None:
    with serving(Reply(status=401)) as (server, model), pytest.raises(ModelRefused, match="401"):
        model.at(0.1).complete(HELLO, (), on_text=len, cancel=Cancel())  # type: ignore[arg-type]
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_server_is_asked_again_and_the_log_says_so(status: int, caplog: Any) -> None:
    with serving(Reply(status=status), Reply(status=status), Reply("Here.")) as (server, model):
        assert ask(model).text == "Here."
    assert len(server.requests) == 3
    assert caplog.text.count("asking again in 0.0 s") == 2


def test_a_server_that_stays_busy_is_reported_after_the_last_try() -> None:
    busy = Reply(status=429, headers={"retry-after": "0"})
    with serving(busy, retries=2) as (server, model), pytest.raises(ModelUnavailable, match="answered 429"):
        ask(model)
    assert len(server.requests) == 3


@pytest.mark.parametrize("wish", [lambda: "0.3", lambda: formatdate(time.time() + 1.3, usegmt=True)])
def test_retry_after_is_obeyed_as_seconds_and_as_a_date(wish: Callable[[], str]) -> None:
    def busy(_: dict[str, Any]) -> Reply:
        return Reply(status=429, headers={"retry-after": wish()})

    with serving(busy, Reply("Here.")) as (_, model):
        began = time.monotonic()
        ask(model)
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("wish", ["Mon, 01 Jan 99999999999 00:00:00 GMT", formatdate(0, usegmt=True), "0"])
def test_what_asks_for_no_pause_leaves_ours(wish: str, caplog: Any) -> None:
    busy = Reply(status=429, headers={"retry-after": wish})
    with serving(busy, Reply("Here."), pause=0.2) as (_, model):
        assert ask(model).text == "Here."
    assert "asking again in 0.2 s" in caplog.text


def test_a_pause_in_milliseconds_goes_before_the_one_in_whole_seconds() -> None:
    busy = Reply(status=429, headers={"retry-after-ms": "3600500", "retry-after": "1"})
    with serving(busy) as (_, model), pytest.raises(ModelUnavailable) as caught:
        ask(model)
    assert caught.value.retry_after == 3600.5


def test_whatever_a_listener_raises_comes_back() -> None:
    def gone(text: str) -> None:
        raise StopIteration(text)

    with serving(Reply("Hello")) as (_, model), pytest.raises(StopIteration, match="Hello"):
        ask(model, on_text=gone)


def test_a_server_that_wants_too_long_a_pause_is_reported_at_once() -> None:
    busy = Reply(status=429, headers={"retry-after": "3600"})
    with serving(busy) as (server, model), pytest.raises(ModelUnavailable) as caught:
        ask(model)
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_not_tried_again(status: int) -> None:
    with serving(Reply(status=status)) as (server, model), pytest.raises(ModelRefused, match=str(status)):
        ask(model)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("sk-wrong", "check the key that model.api_key_env names"),
        ("", "no key was sent: write it into .env, under the name that model.api_key_env has"),
    ],
)
def test_a_server_that_wants_a_key_is_told_apart_from_one_that_refuses_it(key: str, remedy: str) -> None:
    with serving(Reply(status=401), api_key=key) as (_, model), pytest.raises(ModelRefused) as caught:
        ask(model)
    assert caught.value.remedy == remedy


@pytest.mark.parametrize(
    ("spared", "remedy"),
    [
        (
            "",
            "is the server running, and the proxy of the environment? NO_PROXY names servers that need none",
        ),
        ("127.0.0.1", "is the server running?"),
    ],
)
def test_a_proxy_that_stands_before_a_server_is_named(
    monkeypatch: pytest.MonkeyPatch, spared: str, remedy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", spared)
    model = OpenAIModel(ModelSettings("http://127.0.0.1:9/v1", "scripted", retries=0))
    with closing(model), pytest.raises(ModelUnavailable) as caught:
        ask(model)
    assert caught.value.remedy == remedy


def test_a_request_that_is_too_long_has_its_own_error() -> None:
    error = "This model's maximum context length is 4096 tokens"
    with serving(Reply(status=400, error=error)) as (_, model), pytest.raises(ContextOverflow):
        ask(model)


def test_a_stream_that_breaks_before_any_text_is_tried_again() -> None:
    with serving(Reply("Hello", cut_after=0), Reply("Hello")) as (_, model):
        assert ask(model).text == "Hello"


def test_a_stream_that_breaks_after_text_was_heard_is_an_error_and_not_said_twice() -> None:
    heard: list[str] = []
    with serving(Reply("Hello there", cut_after=2)) as (server, model), pytest.raises(ModelUnavailable):
        ask(model, on_text=heard.append)
    assert heard == ["Hello th"]
    assert len(server.requests) == 1


@pytest.mark.parametrize("alive", [True, False])
def test_an_answer_that_was_said_to_be_at_its_end_is_whole_whatever_becomes_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    monkeypatch.setattr("hermes_memory_agent.connection.LINGER_S", 0.1)
    with unended(event('{"content": "Here."}'), event("{}", '"stop"'), alive=alive) as model:
        assert ask(model).text == "Here."


def test_a_server_that_says_for_too_long_that_it_is_alive_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hermes_memory_agent.connection.MAX_SILENCE_S", 0.1)
    with unended(alive=True) as model, pytest.raises(ModelRefused, match="nothing but that it is alive"):
        ask(model)


def test_an_answer_whose_pieces_are_all_said_to_be_its_end_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_memory_agent.connection.LINGER_S", 0.1)
    pieces = ['{"content": ""}', '{"reasoning_content": "Hm"}', '{"content": "Once"}']
    events = [event(piece, '"stop"') for piece in pieces]
    with unended(*events, *[": alive"] * 20, event('{"content": " more."}', '"stop"'), alive=False) as model:
        heard: list[str] = []
        with pytest.raises(ModelUnavailable):
            ask(model, on_text=heard.append)
    assert heard == ["Once", " more."]


def test_a_server_that_is_not_there_is_named() -> None:
    model = OpenAIModel(ModelSettings("http://127.0.0.1:9/v1", "m", retries=0))
    with pytest.raises(ModelUnavailable, match=r"127\.0\.0\.1:9"):
        ask(model)
    model.close()


@pytest.mark.parametrize(
    ("variable", "value"),
    [("ALL_PROXY", "nonsense://here"), ("SSL_CERT_FILE", "/"), ("HTTP_PROXY", "http://[::1")],
)
def test_a_connection_that_the_environment_spoils_is_told_once_with_where_to_look(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    model = OpenAIModel(ModelSettings("http://127.0.0.1:9/v1", "m"))
    for ask in (
        lambda: model.complete(HELLO, (), on_text=lambda _: None, cancel=Cancel()),
        model.list_models,
    ):
        with pytest.raises(
            ModelRefused, match=r"can't be set up: .*ALL_PROXY, HTTP_PROXY, HTTPS_PROXY and SSL_CERT_FILE"
        ):
            ask()


def test_a_hung_server_is_given_up_after_the_timeout() -> None:
    hold = threading.Event()
    with serving(Reply("", hold=hold), timeout=0.2, retries=0) as (_, model):
        with pytest.raises(ModelUnavailable):
            ask(model)
        hold.set()


def test_the_import_of_the_sdk_takes_no_time_from_the_list_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Model(OpenAIModel):
        def _open(self) -> Any:
            order.append("open")
            return super()._open()

    def note_timer(seconds: float, action: Callable[[], object]) -> Callable[[], None]:
        order.append("timer")
        return lambda: None

    monkeypatch.setattr("hermes_memory_agent.model.call_later", note_timer)
    with ModelServer([]) as server, closing(Model(ModelSettings(server.base_url, "m"))) as model:
        assert model.list_models() == ["scripted"]
    assert order == ["open", "timer"]


def test_another_thread_stops_a_hung_request_at_once() -> None:
    hold, cancel = threading.Event(), Cancel()
    with serving(Reply("Hel", hold=hold)) as (_, model):
        began = time.monotonic()
        with pytest.raises(Cancelled):
            ask(model, on_text=lambda _: threading.Timer(0.05, cancel.set).start(), cancel=cancel)
        assert time.monotonic() - began < 30
        hold.set()


@pytest.mark.parametrize("busy", [False, True])
def test_a_server_that_has_not_begun_to_answer_learns_that_nobody_waits_any_more(busy: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        model = OpenAIModel(ModelSettings(address, "m", retries=1, pause=0.001))
        for _ in range(2):
            cancel = Cancel()
            asking = threading.Thread(target=stopped, args=(model, cancel))
            asking.start()
            if busy:
                with accepted(listening) as connection:
                    connection.sendall(b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\nno")
                    assert not connection.recv(65536), "of a connection that is kept nobody knows in time"
            with accepted(listening) as connection:
                cancel.set()
                while connection.recv(65536):
                    pass
            asking.join()
        model.close()


def test_a_server_whose_listener_is_gone_learns_it_before_it_says_more() -> None:
    def gone(_: str) -> None:
        raise BrokenPipeError

    def listen() -> None:
        with pytest.raises(BrokenPipeError):
            ask(model, on_text=gone)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        model = OpenAIModel(ModelSettings(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "m"))
        asking = threading.Thread(target=listen)
        asking.start()
        with accepted(listening) as connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            connection.sendall(event('{"content": "Once"}').encode() + b"\n\n")
            while connection.recv(65536):
                pass
        asking.join()
        model.close()


def test_a_pause_between_two_tries_can_be_stopped() -> None:
    cancel = Cancel()
    with serving(Reply(status=429, headers={"retry-after": "60"})) as (_, model):
        threading.Timer(0.1, cancel.set).start()
        with pytest.raises(Cancelled):
            ask(model, cancel=cancel)


def test_the_key_is_sent_and_never_printed() -> None:
    with serving(Reply("Hi"), api_key="sk-secret") as (server, model):
        ask(model)
        assert "sk-secret" not in repr(model.settings)
    assert server.headers[0]["authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_model_that_was_closed_says_so_and_asks_nothing(asked_before: bool) -> None:
    with serving(Reply("Hi")) as (server, model):
        if asked_before:
            ask(model)
        model.close()
        with pytest.raises(ModelRefused, match="'scripted' was closed"):
            ask(model)
        with pytest.raises(ModelRefused, match="'scripted' was closed"):
            model.list_models()
        assert len(server.requests) == asked_before


def test_a_model_without_a_name_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        OpenAIModel(ModelSettings())


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"frequency": 1}, "unknown field 'frequency'"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "user", "content": "x", "ref": "1"}]}, "unknown field 'ref'"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "unknown role"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "must follow the call"),
        ({"tools": [TOOL]}, "a tool must be"),
        ({"tools": [{"type": "function", "function": {**TOOL, "parameters": {}}}]}, 'type "object"'),
    ],
)
def test_the_scripted_server_refuses_what_the_api_would(change: dict[str, Any], fault: str) -> None:
    assert fault in request_fault({"model": "m", "messages": HELLO, **change})


@pytest.mark.parametrize(
    "address",
    [
        "localhost:11434",
        "http://",
        "http://localhost:port/v1",
        "http://[::1/v1",
        "ftp://models/v1",
        "https://me.openai.azure.com/openai/deployments/m?api-version=2024-10-21",
    ],
)
def test_an_address_that_is_none_is_refused_before_anything_is_asked(address: str) -> None:
    with pytest.raises(ConfigError, match="base_url is"):
        OpenAIModel(ModelSettings(address, "scripted"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": 5}, "the model's name is 5"),
        ({"base_url": 5}, "base_url is 5"),
        ({"api_key": None}, "the model's key is a NoneType"),
        ({"api_key": b"sk-4711"}, "the model's key is a bytes"),
        ({"context_length": "32k"}, "context_length is '32k'; give a number of 1 or more"),
        ({"context_length": 0}, "context_length is 0"),
        ({"timeout": None}, "timeout is None"),
        ({"timeout": -1}, "timeout is -1"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"retries": -1}, "retries is -1"),
        ({"retries": "2"}, "retries is '2'"),
        ({"pause": -1.0}, r"pause is -1\.0"),
    ],
)
def test_settings_with_which_each_turn_would_break_are_refused_at_once(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        OpenAIModel(ModelSettings(**{"name": "scripted", **given}))
    assert "4711" not in str(caught.value)


@pytest.mark.parametrize("settings", ["gpt-4", None, {"name": "gpt-4"}])
def test_a_model_is_made_of_settings_alone(settings: Any) -> None:
    with pytest.raises(ConfigError, match=r"give ModelSettings\(base_url, name\)"):
        OpenAIModel(settings)


@pytest.mark.parametrize("key", ["sk-4711\n", "sk-4711\u2013"])
def test_a_key_that_can_be_none_is_refused_without_being_printed(key: str) -> None:
    with pytest.raises(ConfigError, match="api_key_env") as caught:
        OpenAIModel(ModelSettings("http://localhost/v1", "scripted", key))
    assert "4711" not in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full backlog refuses")
def test_a_host_that_takes_no_connection_is_told_apart_from_one_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hermes_memory_agent.model.CONNECT_TIMEOUT_S", 0.1)
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        model = OpenAIModel(ModelSettings(f"http://127.0.0.1:{full.getsockname()[1]}/v1", "m", retries=0))
        stack.callback(model.close)
        with pytest.raises(ModelUnavailable, match=r"nothing there in 0\.1 s"):
            ask(model)


CUT = 'content-length: 99\r\n\r\n{"choices": [{'


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (f"200 OK\r\ncontent-type: application/json\r\n{CUT}", "without sending complete"),
        (f"502 Bad Gateway\r\ncontent-type: application/json\r\n{CUT}", "without sending complete"),
        ("200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n\r\n{}", "decompressing"),
        ("302 Found\r\ncontent-encoding: gzip\r\n\r\nno gzip", "decompressing"),
    ],
    ids=["answer", "error", "garbled answer", "garbled redirect"],
)
def test_a_body_that_can_not_be_read_to_its_end_is_asked_for_again(answer: str, said: str) -> None:
    def serve() -> None:
        for _ in range(2):
            with accepted(listening) as connection:
                connection.sendall(f"HTTP/1.1 {answer}".encode())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        model = OpenAIModel(ModelSettings(address, "m", retries=1, pause=0.001))
        with closing(model), pytest.raises(ModelUnavailable, match=said):
            ask(model)
        thread.join(10)
        assert not thread.is_alive(), "it was asked once"


def test_a_whole_answer_that_stops_coming_is_given_up_after_the_timeout() -> None:
    def serve() -> None:
        with accepted(listening) as connection:
            connection.sendall(f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{CUT}".encode())
            over.wait(20)

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        model = OpenAIModel(ModelSettings(address, "m", retries=0, timeout=0.2))
        with closing(model), pytest.raises(ModelUnavailable, match=r"did not answer within 0\.2 s"):
            ask(model)
        over.set()
        thread.join(10)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("500 Broken\r\ncontent-type: text/plain", "answered 500: .*No. No"),
        ("200 OK\r\ncontent-type: application/json", "is no answer"),
    ],
)
def test_an_error_that_has_no_end_is_not_read_to_it(head: str, said: str) -> None:
    with endless(head) as (model, sent):
        with pytest.raises(ModelUnavailable, match=said):
            ask(model)
        assert sent[0] < 20_000_000
