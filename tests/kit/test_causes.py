"""Each failure of a backend has the remedy of its cause, with the address and the name of the setting."""

from __future__ import annotations

import pickle

import pytest

from hermes_core.errors import (
    BackendAuthError,
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    ProviderError,
)
from hermes_core.kit.causes import REMEDIES, foreign_remedy, is_absent
from hermes_core.kit.http import Backend

HERE = Backend("Facts", "http://facts.example:8000", "facts_url", "FACTS_KEY")
KEYLESS = Backend("Facts", "http://facts.example:8000", "facts_url", "FACTS_KEY", has_key=False)
PAGE = "<!DOCTYPE html> <title>Sign in"


@pytest.mark.parametrize(
    ("backend", "status", "detail", "cause", "kind"),
    [
        (KEYLESS, 401, "no token", "key missing", BackendAuthError),
        (KEYLESS, 403, "Forbidden", "key missing", BackendAuthError),
        (HERE, 401, "invalid token", "key refused", BackendAuthError),
        (HERE, 403, "not permitted", "no rights", BackendAuthError),
        (HERE, 402, "upgrade", "quota", BackendAuthError),
        (HERE, 429, "slow down", "wait", BackendUnavailable),
        (HERE, 500, "litellm.RateLimitError: too many requests", "wait", BackendUnavailable),
        (HERE, 200, PAGE, "page", BackendUnavailable),
        (HERE, 403, PAGE, "page", BackendUnavailable),
        (HERE, 407, "", "page", BackendUnavailable),
        (HERE, 414, "<html>Request-URI Too Long", "request", BackendRefused),
        (HERE, 511, "", "page", BackendUnavailable),
        (HERE, 302, "https://sso.example/login?next=x", "page", BackendUnavailable),
        (HERE, 301, "https://new.example", "moved", BackendUnavailable),
        (HERE, 301, "https://facts.example:8000", "scheme", BackendUnavailable),
        (HERE, 400, "Client sent an HTTP request to an HTTPS server.", "scheme", BackendUnavailable),
        (HERE, 400, "The plain HTTP request was sent to HTTPS port", "scheme", BackendUnavailable),
        (HERE, 404, "Not Found", "no route", BackendNotFound),
        (HERE, 404, "404 page not found", "no route", BackendNotFound),
        (HERE, 404, "Cannot POST /v1/facts", "no route", BackendNotFound),
        (HERE, 404, "", "no route", BackendNotFound),
        (HERE, 404, "<h1>Not Found</h1>", "no route", BackendNotFound),
        (HERE, 404, "Peer ann not found", "absent", BackendNotFound),
        (HERE, 410, "that fact is gone", "absent", BackendNotFound),
        (HERE, 502, "<html>502 Bad Gateway", "gateway", BackendUnavailable),
        (HERE, 503, "", "fault", BackendUnavailable),
        (HERE, 500, "An unexpected error occurred", "fault", BackendUnavailable),
        (HERE, 500, "embedding failed", "model", BackendUnavailable),
        (HERE, 422, "no language model is configured", "model", BackendRefused),
        (HERE, 507, "", "disk", BackendUnavailable),
        (HERE, 500, "[Errno 28] No space left on device", "disk", BackendUnavailable),
        (HERE, 422, "field required", "request", BackendRefused),
        (HERE, None, "[Errno 111] Connection refused", "port", BackendUnavailable),
        (HERE, None, "[Errno -2] Name or service not known", "host", BackendUnavailable),
        (HERE, None, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "certificate", BackendUnavailable),
        (HERE, None, "[SSL: WRONG_VERSION_NUMBER] wrong version number", "scheme", BackendUnavailable),
        (HERE, None, "[SSL: RECORD_LAYER_FAILURE] record layer failure", "scheme", BackendUnavailable),
        (HERE, None, "illegal status line: bytearray(b'\\x15\\x03')", "scheme", BackendUnavailable),
        (HERE, None, "Remote end closed connection without response", "closed", BackendUnavailable),
        (HERE, None, "Tunnel connection failed: 407 Proxy Authentication Required", "page", BackendUnavailable),
        (HERE, None, "Read timed out", "late", BackendUnavailable),
    ],
)  # fmt: skip
def test_a_failure_has_the_remedy_of_its_cause(
    backend: Backend, status: int | None, detail: str, cause: str, kind: type[ProviderError]
) -> None:
    error = backend.unexpected(detail) if status == 200 else backend.error(status, detail)
    assert (error.cause, type(error)) == (cause, kind)
    assert error.remedy == backend.remedy(cause)
    assert "facts.example:8000" in error.remedy
    assert "'facts_url'" in error.remedy or "FACTS_KEY" in error.remedy


def test_every_remedy_names_the_address_and_a_setting() -> None:
    for cause in REMEDIES:
        remedy = HERE.remedy(cause, 5)
        assert "'http://facts.example:8000'" in remedy, cause
        assert "'facts_url'" in remedy or "FACTS_KEY" in remedy, cause


@pytest.mark.parametrize(
    ("header", "detail", "seconds"),
    [("17", "", 17), ("16.2", "", 17), (None, "please try again in 7.5s", 8)],
)
def test_a_limit_names_the_seconds_to_wait(header: str | None, detail: str, seconds: int) -> None:
    error = HERE.error(429, detail, header)
    assert isinstance(error, BackendUnavailable)
    assert error.retry_after is not None
    assert f"wait {seconds} s" in error.remedy


def test_a_model_that_answers_junk_blames_no_store() -> None:
    model = Backend("the embedder", "http://models.example", "embedder_url", "MODEL_KEY", is_model=True)
    error = model.unexpected("<not JSON")
    assert error.cause == "model"
    assert "store" not in str(error)
    assert "embedder_url" in error.remedy


def test_a_thing_that_is_absent_is_told_from_a_path_that_is() -> None:
    assert is_absent(HERE.error(404, "Session not found"))
    assert not is_absent(HERE.error(404, "Not Found"))
    assert not is_absent(HERE.error(500, "Session not found"))


def test_an_error_keeps_its_remedy_when_it_is_copied() -> None:
    error = HERE.error(429, "slow down", "3")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.cause, again.retry_after) == (str(error), "wait", 3.0)


def test_an_error_of_another_library_has_a_remedy_too() -> None:
    requests = pytest.importorskip("requests")
    answer = requests.Response()
    answer.status_code = 429
    answer.headers["Retry-After"] = "9"
    answer.request = requests.Request("GET", "https://facts.example/v1?q=private").prepare()
    remedy = foreign_remedy(requests.HTTPError("429", response=answer))
    assert "wait 9 s" in remedy
    assert "https://facts.example" in remedy
    assert "private" not in remedy
    assert "is it running?" in foreign_remedy(ConnectionRefusedError(111, "Connection refused"))
    assert foreign_remedy(KeyError("a bug")) == ""
