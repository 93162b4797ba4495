from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.errors import (
    BackendAuthError,
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    ConfigError,
)
from hermes_core.kit.http import (
    MAX_ANSWER_BYTES,
    Api,
    Download,
    backend_error,
    base_url,
    error_detail,
    httpx_client,
    retry_after_seconds,
)
from hermes_memory_testing import Raw, StandIn


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as running:
        running.route("GET", "/v1/facts", lambda request: {"facts": ["tea"]})
        running.route("POST", "/v1/facts", lambda request: (201, {"id": 7}))
        yield running


@pytest.fixture
def api(server: StandIn) -> Iterator[Api]:
    headers = {"Authorization": "Bearer k"}
    with Api(f"{server.url}/v1/", name="Facts", key="FACTS_KEY", headers=headers, timeout=20.0) as opened:
        yield opened


def test_a_call_gives_the_json_of_the_answer(api: Api, server: StandIn) -> None:
    assert api.get("/facts", params={"q": "tea", "page": None}) == {"facts": ["tea"]}
    assert api.post("/facts", {"text": "tea"}) == {"id": 7}
    asked, told = server.requests
    assert asked.query == {"q": ["tea"]}
    assert asked.headers["authorization"] == "Bearer k"
    assert told.json == {"text": "tea"}


def test_a_backend_may_give_a_status_a_meaning_of_its_own(server: StandIn) -> None:
    def meaning(status: int, body: str) -> BackendRefused | None:
        return BackendRefused(f"not yours: {error_detail(body)}") if status == 403 else None

    server.route("GET", "/v1/theirs", lambda request: (403, {"error": "of another user"}))
    server.route("GET", "/v1/gone", lambda request: (404, {}))
    with Api(f"{server.url}/v1", name="Facts", meaning=meaning) as api:
        with pytest.raises(BackendRefused, match="not yours: of another user"):
            api.get("/theirs")
        with pytest.raises(BackendNotFound):
            api.get("/gone")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BackendRefused),
        (401, BackendAuthError),
        (402, BackendAuthError),
        (403, BackendAuthError),
        (404, BackendNotFound),
        (408, BackendUnavailable),
        (409, BackendRefused),
        (410, BackendNotFound),
        (422, BackendRefused),
        (425, BackendUnavailable),
        (429, BackendUnavailable),
        (500, BackendUnavailable),
        (503, BackendUnavailable),
    ],
)
def test_every_status_has_its_error(api: Api, server: StandIn, status: int, error: type) -> None:
    server.fail(status=status)
    with pytest.raises(error, match=rf"Facts at .* answered {status}: 'told to answer {status}'") as raised:
        api.get("/facts")
    assert type(raised.value) is error


def test_a_refused_key_names_its_variable(api: Api, server: StandIn) -> None:
    server.fail(status=401)
    with pytest.raises(BackendAuthError, match="check FACTS_KEY"):
        api.get("/facts")


def test_retry_after_of_a_busy_backend_is_in_the_error(api: Api, server: StandIn) -> None:
    server.fail(status=429, retry_after=12)
    with pytest.raises(BackendUnavailable) as raised:
        api.get("/facts")
    assert raised.value.retry_after == 12


@pytest.mark.parametrize("fault", [{"cut": True}, {"drop": True}, {"garbage": True}, {"delay": 5.0}])
def test_a_missing_or_broken_answer_means_unavailable(
    api: Api, server: StandIn, fault: dict[str, object]
) -> None:
    server.fail(**fault)
    with pytest.raises(BackendUnavailable):
        api.get("/facts", timeout=0.5 if "delay" in fault else None)


def test_nobody_at_the_address_means_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Api(url, name="Facts") as api, pytest.raises(BackendUnavailable, match="is it running"):
            api.get("/facts")


def test_json_that_is_nested_without_end_is_no_answer(api: Api, server: StandIn) -> None:
    server.route("GET", "/v1/deep", lambda request: Raw(b"[" * 100_000 + b"]" * 100_000))
    with pytest.raises(BackendUnavailable, match="something else"):
        api.get("/deep")


def test_an_answer_that_arrives_byte_by_byte_ends_at_the_deadline(server: StandIn) -> None:
    server.fail(drip=True)
    with (
        Api(server.url, name="Facts", timeout=0.3) as api,
        pytest.raises(BackendUnavailable, match=r"after 0.3 s"),
    ):
        api.get("/")


def test_an_answer_that_is_too_large_is_refused(server: StandIn) -> None:
    bomb = Raw(gzip.compress(bytes(MAX_ANSWER_BYTES + 1), 1), {"Content-Encoding": "gzip"})
    server.route("GET", "/bomb", lambda request: bomb)
    with (
        Api(server.url, name="Facts") as api,
        pytest.raises(BackendUnavailable, match=f"over {MAX_ANSWER_BYTES}"),
    ):
        api.get("/bomb")


def test_an_httpx_client_limits_each_answer_and_shows_it_to_hooks(server: StandIn) -> None:
    seen: list[httpx.Response] = []
    with httpx_client(server.url, timeout=1.0, event_hooks={"response": [seen.append]}) as client:
        assert client.get(f"{server.url}/v1/facts").json() == {"facts": ["tea"]}
        assert seen[0].json() == {"facts": ["tea"]}
        server.fail(drip=True)
        with pytest.raises(httpx.ReadTimeout):
            client.get(f"{server.url}/v1/facts")


def test_a_proxy_that_can_not_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "foo://me:hunter2@x")
    with pytest.raises(ConfigError, match="HTTP client can be made") as raised:
        Api("https://127.0.0.1:1", name="Facts")
    assert "HTTPS_PROXY" in raised.value.remedy
    assert "hunter2" not in str(raised.value)


def test_a_missing_package_is_named_with_the_command_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as refused:
        httpx_client("http://127.0.0.1:9", timeout=1.0)
    assert refused.value.message == "the module 'httpx' is not installed"
    assert refused.value.remedy.startswith("pip install httpx;")


def test_a_redirect_does_not_carry_the_key_elsewhere(api: Api, server: StandIn) -> None:
    server.fail(status=302)
    with pytest.raises(BackendUnavailable, match="the address has moved"):
        api.get("/facts")


@pytest.mark.parametrize(
    "url", ["", "facts.example.com", "localhost:80", "ftp://x", "http://", "http://[::1"]
)
def test_a_text_that_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^Facts: '.*' is no address; write it as https"):
        Api(url, name="Facts")
    with pytest.raises(ConfigError, match=r"^'base_url': '.*' is no address"):
        base_url(url, "'base_url'")


def test_an_address_ends_without_a_slash() -> None:
    assert base_url("https://facts.example.com/v1/", "'base_url'") == "https://facts.example.com/v1"


def test_a_date_as_retry_after_is_seconds_from_now() -> None:
    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert (retry_after_seconds("Wed, 21 Oct 2099 07:28:00 GMT") or 0) > 1e9
    assert retry_after_seconds("Mon, 01 Jan 99999999999 00:00:00 GMT") is None


@given(st.text())
def test_any_header_and_any_body_can_be_read(text: str) -> None:
    retry_after_seconds(text)
    assert len(error_detail(text)) <= 300


@given(
    st.recursive(st.none() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_any_json_body_has_a_message(data: object) -> None:
    assert isinstance(error_detail(json.dumps(data)), str)


@given(st.integers(100, 599).filter(lambda status: not 200 <= status < 300))
def test_every_status_without_success_is_an_error(status: int) -> None:
    assert str(status) in str(backend_error(status, "Facts"))


def test_a_file_is_downloaded_as_it_is(api: Api, server: StandIn) -> None:
    server.route(
        "GET", "/v1/file", lambda request: Raw(b"\x00tea", {"Content-Type": "Text/Plain; charset=x"})
    )
    assert api.download("/file") == Download(b"\x00tea", "text/plain")


def test_the_error_of_a_redirect_names_its_target(api: Api, server: StandIn) -> None:
    moved = Raw(b"<h1>Moved</h1>", {"Location": "https://teas.example/v2"})
    server.route("GET", "/v1/teas", lambda request: (301, moved))
    with pytest.raises(BackendUnavailable, match="answered 301: 'https://teas"):
        api.get("/teas")


def test_an_sdk_that_quotes_bodies_alone_quotes_the_target_of_a_redirect(server: StandIn) -> None:
    moved = Raw(b"<h1>Moved</h1>", {"Location": "https://teas.example/v2", "Content-Type": "text/html"})
    server.route("GET", "/v1/teas", lambda request: (301, moved))
    with httpx_client(server.url, timeout=5.0) as client:
        answer = client.get(f"{server.url}/v1/teas")
    assert error_detail(answer.text) == "https://teas.example/v2"
    assert answer.json() == {"message": "https://teas.example/v2"}


def test_a_404_asks_whether_the_address_is_right(api: Api) -> None:
    with pytest.raises(
        BackendNotFound, match=r"answered 404.*; is this its address, or was it deleted there"
    ):
        api.get("/nowhere")


def test_a_download_follows_redirects_and_keeps_the_key_to_its_own_host(api: Api, server: StandIn) -> None:
    with StandIn() as store:
        store.route("GET", "/blob", lambda request: Raw(b"tea"))
        server.route("GET", "/v1/near", lambda request: (302, Raw(b"", {"Location": "/v1/file"})))
        server.route("GET", "/v1/file", lambda request: Raw(b"here"))
        server.route("GET", "/v1/far", lambda request: (302, Raw(b"", {"Location": f"{store.url}/blob"})))
        assert api.download("/near").content == b"here"
        assert api.download("/far").content == b"tea"
        assert server.requests[1].headers["authorization"] == "Bearer k"
        assert "authorization" not in store.requests[0].headers


def test_a_download_that_fails_has_the_errors_of_every_call(api: Api, server: StandIn) -> None:
    with pytest.raises(BackendNotFound):
        api.download("/nowhere")
    server.route("GET", "/v1/gone", lambda request: (302, Raw(b"", {"Location": "/v1/nowhere"})))
    with pytest.raises(BackendNotFound):
        api.download("/gone")


def _redirect_chain(server: StandIn, hops: int) -> None:
    """Let /v1/hop0 redirect to the next one, `hops` times in all, to a file."""
    for hop in range(hops):
        target = Raw(b"", {"Location": f"/v1/hop{hop + 1}"})
        server.route("GET", f"/v1/hop{hop}", lambda request, target=target: (302, target))
    server.route("GET", f"/v1/hop{hops}", lambda request: Raw(b"tea"))


@pytest.mark.parametrize("hops", [2, 5])
def test_a_download_follows_five_redirects(api: Api, server: StandIn, hops: int) -> None:
    _redirect_chain(server, hops)
    assert api.download("/hop0").content == b"tea"


def test_a_download_ends_after_the_fifth_redirect(api: Api, server: StandIn) -> None:
    _redirect_chain(server, 6)
    server.route("GET", "/v1/round", lambda request: (302, Raw(b"", {"Location": "/v1/round"})))
    for path in ("/hop0", "/round"):
        with pytest.raises(BackendRefused, match="more than 5 times"):
            api.download(path)
    assert [request.path for request in server.requests[:7]] == [
        *(f"/v1/hop{hop}" for hop in range(6)),
        "/v1/round",
    ]


def test_the_key_does_not_come_along_a_detour_over_another_host(api: Api, server: StandIn) -> None:
    with StandIn() as store:
        store.route("GET", "/a", lambda request: (307, Raw(b"", {"Location": f"{store.url}/b"})))
        store.route("GET", "/b", lambda request: Raw(b"tea"))
        server.route("GET", "/v1/far", lambda request: (302, Raw(b"", {"Location": f"{store.url}/a"})))
        assert api.download("/far").content == b"tea"
        assert [request.headers.get("authorization") for request in store.requests] == [None, None]


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://teas.example/", "https:///x"])
def test_a_download_goes_to_http_and_https_alone(api: Api, server: StandIn, target: str) -> None:
    server.route("GET", "/v1/odd", lambda request: (302, Raw(b"", {"Location": target})))
    with pytest.raises(BackendRefused, match="which is not followed"):
        api.download("/odd")
    assert len(server.requests) == 1


@pytest.mark.parametrize("target", ["http://teas.example/file", "//teas.example/file", "/file"])
def test_a_download_over_https_stays_there(target: str) -> None:
    with Api("https://127.0.0.1:9", name="Facts") as api:
        if target.startswith("http://"):
            with pytest.raises(BackendRefused, match="which is not followed"):
                api._redirect_target("https://127.0.0.1:9/v1/file", target)
        else:
            assert api._redirect_target("https://127.0.0.1:9/v1/file", target).startswith("https://")


def test_certificates_are_checked_for_tls_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.pem").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "broken.pem"))
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    Api("http://127.0.0.1:9", name="Facts").close()
    with pytest.raises(ConfigError, match="holds no certificates") as raised:
        Api("https://127.0.0.1:9", name="Facts")
    assert "SSL_CERT_FILE" in raised.value.remedy


@pytest.mark.parametrize("key", ["geheim123\n", "geheim123 ", "gehe\rim123"])
def test_a_key_that_no_header_can_hold_is_reported_and_not_shown(server: StandIn, key: str) -> None:
    api = Api(server.url, name="Facts", key="FACTS_KEY", headers={"X-API-Key": key})
    with api, pytest.raises(BackendAuthError) as caught:
        api.get("/v1/facts")
    assert "FACTS_KEY" in str(caught.value)
    assert "gehe" not in f"{caught.value!r} {''.join(traceback.format_exception(caught.value))}"
    assert "gehe" not in repr(backend_error(None, "Facts", detail=f"Illegal header value b{key!r}"))


@pytest.mark.parametrize("path", ["/facts/.", "/facts/..", "/facts/./", "/facts/../facts?all=1"])
def test_an_id_of_dots_does_not_lead_to_another_path(api: Api, server: StandIn, path: str) -> None:
    with pytest.raises(BackendNotFound):
        api.delete(path)
    assert server.requests == []


def test_each_thread_keeps_its_own_connections(api: Api) -> None:
    sessions = [api._session(), api._session()]
    other = threading.Thread(target=lambda: sessions.append(api._session()))
    other.start()
    other.join()
    assert sessions[0] is sessions[1] is not sessions[2]


class KeptOpen(BaseHTTPRequestHandler):
    """A server that keeps connections open; `clients` has the port of each request."""

    protocol_version = "HTTP/1.1"
    clients: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        self.clients.append(self.client_address[1])
        self.send_response(200)
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"2\r\n{}\r\n0\r\n\r\n")
        else:
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  the library's name
        """Say nothing."""


def test_calls_of_one_thread_share_a_connection() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), KeptOpen) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Api(f"http://127.0.0.1:{server.server_port}", name="Facts") as api:
            assert [api.get(path) for path in ("/a", "/chunked", "/b")] == [{}, {}, {}]
        server.shutdown()
    assert len(KeptOpen.clients) == 3
    assert len({*KeptOpen.clients}) == 1


def test_a_password_in_netrc_does_not_replace_the_key(
    api: Api, server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ann password hunter22\n")
    monkeypatch.setenv("NETRC", str(netrc))
    api.get("/facts")
    assert server.requests[0].headers["authorization"] == "Bearer k"


def test_an_error_does_not_quote_the_question() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with (
            Api(f"http://127.0.0.1:{taken.getsockname()[1]}", name="Facts") as api,
            pytest.raises(BackendUnavailable) as caught,
        ):
            api.get("/facts", params={"q": "my secret garden"})
    assert "garden" not in str(caught.value)
    assert "refused" in str(caught.value)


def test_truth_values_in_parameters_are_written_as_in_json(api: Api, server: StandIn) -> None:
    api.get("/facts", params={"deep": True, "all": False, "n": 3})
    assert server.requests[0].query == {"deep": ["true"], "all": ["false"], "n": ["3"]}


def test_a_form_with_a_file_is_sent(api: Api, server: StandIn) -> None:
    api.post("/facts", data={"name": "tea"}, files={"file": ("tea.txt", b"oolong", "text/plain")})
    (request,) = server.requests
    assert request.headers["content-type"].startswith("multipart/form-data")
    assert b"oolong" in request.body


def test_the_kit_loads_no_http_client_before_it_is_used() -> None:
    code = "import sys, hermes_core.kit.http; print({'requests', 'urllib3', 'httpx'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
