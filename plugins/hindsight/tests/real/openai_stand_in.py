"""An endpoint of OpenAI's form on loopback: embeddings of words, and a model that plays Hindsight's three parts.

It extracts a fact from each thing a person said, makes an observation of each fact, and answers a reflection from what it
was shown. `junk` lets it talk nonsense, which a real model does too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
from typing import Any

from hermes_core.kit import fold_space
from hermes_memory_testing import StandIn
from hermes_memory_testing.http_server import Request

SIZE = 384


class Model(StandIn):
    """The endpoint; `url` ends without /v1."""

    def __init__(self) -> None:
        super().__init__()
        self.junk = False
        self.route("POST", "/v1/embeddings", self._embeddings)
        self.route("POST", "/v1/chat/completions", self._chat)

    def _embeddings(self, request: Request) -> Any:
        given = request.json["input"]
        packed = request.json.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": number,
                "embedding": _packed(_vector(text)) if packed else _vector(text),
            }
            for number, text in enumerate([given] if isinstance(given, str) else given)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "model": request.json["model"], "data": data, "usage": usage}

    def _chat(self, request: Request) -> Any:
        messages, tools = request.json["messages"], request.json.get("tools")
        if self.junk:
            return _completion({"role": "assistant", "content": "I would rather not."})
        if tools:
            return _completion(_reflect(messages, [t["function"]["name"] for t in tools]))
        asked = _text(messages[-1])
        if "### New facts" in asked:
            said = _observe(asked)
        elif "\nContent:\n" in asked:
            said = _extract(asked.split("\nContent:\n", 1)[1])
        else:
            said = {}
        return _completion({"role": "assistant", "content": json.dumps(said)})


def _extract(content: str) -> dict[str, Any]:
    try:
        said = [m["content"] for m in json.loads(content) if m["role"] == "user"]
    except (ValueError, TypeError, KeyError):
        said = [content]
    known = {"when": "N/A", "where": "N/A", "who": "N/A", "why": "N/A", "fact_type": "world"}
    return {"facts": [{"what": fold_space(text).removeprefix("User: "), **known} for text in said]}


def _observe(asked: str) -> dict[str, Any]:
    new = asked.split("### Existing observations")[0]
    facts = re.findall(r"^\[([0-9a-f-]{36})\] (.*?)(?: \(mentioned_at=.*)?$", new, re.MULTILINE)
    creates = [{"text": f"Observed: {text}", "source_fact_ids": [id_]} for id_, text in facts]
    return {"creates": creates, "updates": [], "deletes": []}


def _reflect(messages: list[Any], tools: list[str]) -> dict[str, Any]:
    """Search with the first tool offered, until there is one to be done with."""
    seen = " ".join(_text(m) for m in messages if m["role"] == "tool")
    name = "done" if "done" in tools else tools[0]
    asked = next(_text(m) for m in messages if m["role"] == "user")
    arguments = {"query": asked, "reason": "to know", "answer": f"From memory: {seen}", "memory_ids": []}
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _completion(message: dict[str, Any]) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "stand-in",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _text(message: dict[str, Any]) -> str:
    content = message["content"] or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _vector(text: str) -> list[float]:
    """A bag of words: each word is one of 384 directions."""
    vector = [0.0] * SIZE
    for word in re.findall(r"\w+", text.lower()):
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % SIZE] += 1.0
    length = math.sqrt(sum(x * x for x in vector)) or 1.0
    return [x / length for x in vector]


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{SIZE}f", *vector)).decode()
