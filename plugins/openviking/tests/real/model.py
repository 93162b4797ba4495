"""What an OpenViking server asks of a model, answered on loopback: embeddings, summaries, and what to remember.

Texts are embedded as bags of words. From a conversation it remembers what follows "remember that". Servers from 0.5 on want that
as a small program, earlier ones as JSON.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
from typing import Any

from hermes_memory_testing import StandIn
from hermes_memory_testing.http_server import Request

DIMENSION = 384


class Model(StandIn):
    """An OpenAI-compatible endpoint. With `junk` it answers nothing that a server can use."""

    def __init__(self) -> None:
        super().__init__()
        self.junk = False
        self.asked = 0
        self.route("POST", "/v1/embeddings", self._embeddings)
        self.route("POST", "/v1/chat/completions", self._chat)
        self.route("GET", "/v1/models", lambda request: {"object": "list", "data": []})

    def _embeddings(self, request: Request) -> Any:
        given = request.json["input"]
        texts = [given] if isinstance(given, str) else given
        packed = request.json.get("encoding_format") == "base64"
        data = [
            {
                "object": "embedding",
                "index": n,
                "embedding": _packed(_vector(text)) if packed else _vector(text),
            }
            for n, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "data": data, "model": request.json["model"], "usage": usage}

    def _chat(self, request: Request) -> Any:
        self.asked += 1
        text = "\n".join(str(message["content"]) for message in request.json["messages"])
        message = {"role": "assistant", "content": self._answer(text)}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        about = {"id": "x", "object": "chat.completion", "created": 0, "model": request.json["model"]}
        return {**about, "choices": [choice], "usage": usage}

    def _answer(self, text: str) -> str:
        said = re.findall(r"\[\d+\]\[user\](?:\[(.*?)\])?: remember that (.+)", text)
        if self.junk or "memor" not in text:
            return "Summary."
        if "sdk.create_preferences" in text:
            calls = [
                f"sdk.create_preferences(peer_id={peer!r}, user='me', topic={f'topic {n}'!r}, content={fact!r})"
                for n, (peer, fact) in enumerate(said)
            ]
            return "\n".join([*calls, "sdk.commit()"])
        if "PreferencesData" in text:
            learned = [
                {
                    "page_id": 100 + n,
                    "peer_id": peer or None,
                    "user": "me",
                    "topic": f"topic {n}",
                    "content": fact,
                }
                for n, (peer, fact) in enumerate(said)
            ]
            kinds = ("entities", "tools", "profile", "skills", "identity", "events", "soul")
            return json.dumps({"delete_ids": [], "preferences": learned, **{kind: [] for kind in kinds}})
        return "Summary."


def _vector(text: Any) -> list[float]:
    vector = [0.0] * DIMENSION
    for word in re.findall(r"\w+", str(text).lower()):
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % DIMENSION] += 1
    size = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / size for value in vector]


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"{len(vector)}f", *vector)).decode()
