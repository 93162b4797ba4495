from __future__ import annotations

import socket
from urllib.parse import urlsplit

import httpx
import pytest

from hermes_memory_testing.model_server import ModelServer, Reply


def test_a_client_that_asks_for_the_models_first_is_told_of_one() -> None:
    with ModelServer() as server:
        listed = httpx.get(f"{server.base_url}/models").json()
        missing = httpx.get(f"{server.base_url}/elsewhere")
    assert [model["id"] for model in listed["data"]] == ["scripted"]
    assert (missing.status_code, "no such path" in missing.text) == (404, True)


def test_a_client_that_asks_for_no_stream_is_answered_in_one_piece() -> None:
    asked = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}
    with ModelServer([Reply(calls=[("memory", {"action": "add"})]), Reply("Noted.")]) as server:
        calling, saying = (httpx.post(f"{server.base_url}/chat/completions", json=asked).json() for _ in "12")
    (call,) = calling["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "memory", "arguments": '{"action": "add"}'}
    assert calling["choices"][0]["finish_reason"] == "tool_calls"
    assert saying["choices"][0]["message"] == {"role": "assistant", "content": "Noted."}
    assert saying["usage"]["completion_tokens"] == 2


def test_a_client_that_hangs_up_before_it_has_asked_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with ModelServer() as server:
        address = urlsplit(server.base_url)
        with socket.create_connection((str(address.hostname), address.port)) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
    assert (server.requests, server.refused, capsys.readouterr().err) == ([], [], "")
