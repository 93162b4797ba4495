"""A server on loopback that answers as the model servers of four vendors do, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "Noted, and thank you."

Events = list[tuple[str, Any]]


class ScriptedModels(ThreadingHTTPServer):
    """The server. `asked` has the text of each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedModels

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._send(b"{}", "application/json")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.asked.append(body.decode(errors="replace"))
        path = self.path.partition("?")[0]
        if path.endswith("/messages"):
            self._send_events(anthropic())
        elif path.endswith("/responses"):
            self._send_events(openai_responses())
        elif path.endswith("/chat/completions"):
            self._send_events(openai_chat())
        elif path.endswith(":streamGenerateContent"):
            self._send_events([("", gemini())])
        else:
            self._send(
                json.dumps({**gemini(), "input_tokens": 1, "totalTokens": 1}).encode(), "application/json"
            )

    def _send_events(self, events: Events) -> None:
        lines = []
        for name, data in events:
            lines += [f"event: {name}\n"] if name else []
            lines.append(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n")
        self._send("".join(lines).encode(), "text/event-stream")

    def _send(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def anthropic() -> Events:
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": usage,
    }
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ANSWER}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return [(event["type"], event) for event in events]


def openai_responses() -> Events:
    content = [{"type": "output_text", "text": ANSWER, "annotations": []}]
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    place = {"item_id": "msg_1", "output_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", **place, "content_index": 0, "delta": ANSWER},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "r1", "output": [item], "usage": usage}},
    ]
    return [(event["type"], event) for event in events]


def openai_chat() -> Events:
    head = {"id": "c1", "object": "chat.completion.chunk", "model": "m"}
    said = {"index": 0, "delta": {"role": "assistant", "content": ANSWER}, "finish_reason": None}
    done = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [
        ("", {**head, "choices": [said]}),
        ("", {**head, "choices": [done], "usage": usage}),
        ("", "[DONE]"),
    ]


def gemini() -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": ANSWER}]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
