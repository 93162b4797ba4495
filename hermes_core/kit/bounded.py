"""An httpx client whose answers end. httpx bounds each read of one; here the whole of it is, in time and in size."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx

LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes of one answer. A backend that sends more is taken to be broken before it fills the memory."""


class Bounded(httpx.Client):
    """Reads each answer whole, within the time that httpx would wait for a part of it."""

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:  # noqa: ARG002  it is always read
        """The answer. What drips for longer raises `httpx.ReadTimeout`, what is too large `httpx.ReadError`."""
        begun = time.monotonic()
        answer = super().send(request, stream=True, **options)
        limit = request.extensions.get("timeout", {}).get("read")
        body = bytearray()
        try:
            for part in answer.iter_bytes():
                body += part
                if limit is not None and time.monotonic() > begun + limit:
                    raise httpx.ReadTimeout("the answer drips", request=request)
                if len(body) > LARGEST_ANSWER:
                    raise httpx.ReadError(f"over {LARGEST_ANSWER} bytes", request=request)
        finally:
            answer.close()
        if answer.has_redirect_location:  # an SDK's errors tell of the body alone
            body[:] = json.dumps({"message": answer.headers["Location"]}).encode()
        answer._content = bytes(body)  # as `read` does; hooks of an SDK hold this very object
        return answer
