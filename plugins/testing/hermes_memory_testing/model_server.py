"""A model server that says what it is told: OpenAI-compatible chat completions and responses on loopback, for tests.

Strict: a request that the API would refuse is refused here with 400, with the field's name. What was asked is kept.

    with ModelServer([Reply("Hello."), Reply(calls=[("memory", {"action": "add"})]), Reply("Noted.")]) as server:
        ...  # server.base_url, server.requests
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

_REQUEST = frozenset(
    {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "stream",
        "stream_options",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "seed",
        "response_format",
        "user",
    }
)
_MESSAGE: Mapping[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "refusal", "tool_calls"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_FUNCTION = frozenset({"name", "description", "parameters", "strict"})

Call = tuple[str, Mapping[str, Any] | str]
"""A tool's name and its arguments; a string is sent as it is, so that it may be no JSON."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the server.

    `chunk` is the number of characters a piece, or the pieces' ends; `cut_after` breaks the connection after so many
    pieces, `hold` keeps the stream open before its end until the event is set. Any `status` but 200 is an error.
    `raw` is a body to be sent as it stands, whatever it is, with `headers` for its type. Who asks for no stream is
    answered in one piece, of which `chunk`, `cut_after` and `hold` say nothing.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    chunk: int | Sequence[int] = 8
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str = "scripted failure"
    cut_after: int | None = None
    hold: threading.Event | None = None
    finish: str = ""
    prompt_tokens: int | None = None
    raw: str | None = None

    def pieces(self) -> list[str]:
        """The text cut as `chunk` says."""
        if isinstance(self.chunk, int):
            ends: Sequence[int] = range(self.chunk, len(self.text) + self.chunk, self.chunk)
        else:
            ends = [*self.chunk, len(self.text)]
        return [self.text[start:end] for start, end in zip([0, *ends], ends, strict=False) if start < end]


Script = Reply | Callable[[dict[str, Any]], Reply]


class ModelServer:
    """Answers with the script's replies, in order; the last one again when it is used up (`loop=False`: 500).

    An entry may be a function from the request to a reply. `requests` holds every request that was accepted,
    `refused` what was wrong with the others. `strict=False` takes what other programs send, who add fields of theirs.
    """

    def __init__(self, script: Iterable[Script] = (), *, loop: bool = True, strict: bool = True) -> None:
        self._script = list(script) or [Reply("ok")]
        self._loop = loop
        self._strict = strict
        # The agent's turn and its background review ask at the same time.
        self._lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        """Return the value for `model.base_url`."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def add(self, *replies: Script) -> None:
        """Put more replies behind the script."""
        with self._lock:
            self._script.extend(replies)

    def next_reply(self, request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        """Take note of a request and say what it gets."""
        fault = request_fault(request) if self._strict and "messages" in request else ""
        if "input" in request and request.get("stream"):
            fault = "stream: responses come whole here"
        with self._lock:
            if fault:
                self.refused.append(fault)
                return Reply(status=400, error=fault)
            self.requests.append(request)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            if not self._script:
                return Reply(status=500, error="the script is at its end")
            last = len(self._script) == 1 and self._loop
            entry = self._script[0] if last else self._script.pop(0)
        return entry if isinstance(entry, Reply) else entry(request)

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of five, the default, the kernel refuses some when fifty people speak at once

    def __init__(self, owner: ModelServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is what tests of interrupts do; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def request_fault(request: Mapping[str, Any]) -> str:
    """Return why the chat completions API would refuse this request, or "" if it would not."""
    unknown = sorted(set(request) - _REQUEST)
    if unknown:
        return f"unknown field {unknown[0]!r}"
    if not isinstance(request.get("model"), str):
        return "model must be a string"
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        return "messages must be a list with at least one message"
    tools = request.get("tools", [])
    return next(filter(None, map(_tool_fault, tools)), "") or _names_fault(tools) or _messages_fault(messages)


def _tool_fault(tool: Any) -> str:
    if not isinstance(tool, dict) or tool.get("type") != "function" or set(tool) != {"type", "function"}:
        return f"a tool must be {{type: function, function: ...}}, not {tool!r}"
    unknown = sorted(set(tool["function"]) - _FUNCTION)
    if unknown:
        return f"unknown field {unknown[0]!r} in a function"
    parameters = tool["function"].get("parameters", {"type": "object"})
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        return 'parameters must be a JSON schema of type "object"'
    return ""


def _names_fault(tools: Sequence[Mapping[str, Any]]) -> str:
    names = [tool["function"].get("name") for tool in tools]
    return "two tools share a name" if len(set(names)) != len(names) else ""


def _messages_fault(messages: Sequence[Any]) -> str:
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        fault = _message_fault(message)
        if fault:
            return f"messages[{number}]: {fault}"
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return f"messages[{number}]: a tool message must follow the call that it answers"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return f"messages[{number}]: tool calls {open_calls!r} have no answer"
        open_calls += [call["id"] for call in message.get("tool_calls", ())]
    return f"tool calls {open_calls!r} have no answer" if open_calls else ""


def _message_fault(message: Any) -> str:
    if not isinstance(message, dict) or message.get("role") not in _MESSAGE:
        return f"unknown role {message.get('role') if isinstance(message, dict) else message!r}"
    unknown = sorted(set(message) - _MESSAGE[message["role"]])
    if unknown:
        return f"unknown field {unknown[0]!r} for {message['role']}"
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        return ""
    if not isinstance(content, str | list):
        return "content must be a string or a list of parts"
    if message["role"] == "tool" and not isinstance(message.get("tool_call_id"), str):
        return "tool_call_id must be a string"
    return ""


class _Handler(BaseHTTPRequestHandler):
    """One connection. The server that it came in by knows whose script is played."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:  # who asked has hung up
            self.close_connection = True
            return
        if not self.path.endswith(("/chat/completions", "/responses")):
            self._fail(Reply(status=404, error=f"no such path {self.path!r}"))
            return
        request = json.loads(body)
        reply = self.server.owner.next_reply(request, dict(self.headers.items()))
        if self.path.endswith("/responses") and reply.status == 200:
            self._json(200, _response(request, reply), {})
            return
        if reply.raw is not None:
            self._whole(reply.status, reply.raw, {"content-type": "text/event-stream", **reply.headers})
            return
        if reply.status != 200:
            self._fail(reply)
            return
        if not request.get("stream"):
            self._json(200, _completion(request, reply), {})
            return
        try:
            self._stream(request, reply)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_GET(self) -> None:
        """The list of models, which some clients ask for before they take an address."""
        if not self.path.endswith("/models"):
            self._fail(Reply(status=404, error=f"no such path {self.path!r}"))
            return
        model = {"id": "scripted", "object": "model", "created": 0, "owned_by": "tests"}
        self._json(200, {"object": "list", "data": [model]}, {})

    def _fail(self, reply: Reply) -> None:
        error = {"error": {"message": reply.error, "type": "scripted"}}
        self._json(reply.status, error, reply.headers)

    def _json(self, status: int, data: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        self._whole(status, json.dumps(data), {**headers, "content-type": "application/json"})

    def _whole(self, status: int, text: str, headers: Mapping[str, str]) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, request: dict[str, Any], reply: Reply) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for delta in _deltas(reply)[: reply.cut_after]:
            self._event(_chunk(request, delta))
        if reply.cut_after is not None:
            self.close_connection = True
            return
        if reply.hold is not None:
            # Longer than any test waits; only a test that forgot to release it comes to the end.
            reply.hold.wait(30)
        self._event(_chunk(request, {}, finish=_finish(reply)))
        self._event({**_chunk(request, {}), "choices": [], "usage": _usage(request, reply)})
        self._write(b"data: [DONE]\n\n")
        self._write(b"")

    def _event(self, event: dict[str, Any]) -> None:
        self._write(b"data: %s\n\n" % json.dumps(event).encode())

    def _write(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """Print nothing; tests look at `requests`."""


def _calls(reply: Reply) -> list[dict[str, Any]]:
    calls = []
    for index, (name, arguments) in enumerate(reply.calls):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": name, "arguments": text}
        calls.append({"id": f"call_{index}_{name}", "type": "function", "function": function})
    return calls


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _completion(request: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """The whole answer to who asked for no stream."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = _calls(reply)
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(reply)}],
        "usage": _usage(request, reply),
    }


def _response(request: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """The whole answer of the Responses API."""
    output: list[dict[str, Any]] = [
        {
            "type": "function_call",
            "id": f"fc_{call['id']}",
            "call_id": call["id"],
            "status": "completed",
            **call["function"],
        }
        for call in _calls(reply)
    ]
    if reply.text:
        text = {"type": "output_text", "text": reply.text, "annotations": []}
        message = {"type": "message", "id": "msg_scripted", "role": "assistant", "status": "completed"}
        output.append({**message, "content": [text]})
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": 0,
        "model": request["model"],
        "status": "completed",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        },
    }


def _deltas(reply: Reply) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in reply.pieces()]
    for index, call in enumerate(_calls(reply)):
        text = call["function"]["arguments"]
        function = {**call["function"], "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, **call, "function": function}]})
        middle = len(text) // 2
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
            for part in (text[:middle], text[middle:])
        ]
    return deltas


def _chunk(request: Mapping[str, Any], delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "scripted",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": request["model"],
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def _usage(request: Mapping[str, Any], reply: Reply) -> dict[str, int]:
    prompt = reply.prompt_tokens
    if prompt is None:
        prompt = len(json.dumps([request["messages"], request.get("tools", [])])) // 4
    completion = len(reply.text) // 4 + 1
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
