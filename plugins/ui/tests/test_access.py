"""Only the browser that opened the printed address may use the page, and only through our own forms."""

from __future__ import annotations

import http.client
import logging
import socket
import threading

import httpx
import pytest
from starlette.datastructures import Headers

from hermes_memory_ui.access import COOKIE, HEADERS, Access
from plugins.ui.tests.conftest import Serve, ServedPage, other_program


@pytest.fixture
def served(serve: Serve) -> ServedPage:
    return serve()


def raw(served: ServedPage, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
    """Send a request with exactly these headers."""
    host, _, port = served.origin.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    status, text = response.status, response.read().decode()
    connection.close()
    return status, text


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_never_get(served: ServedPage) -> None:
    answer = httpx.get(served.access.url)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{served.access.root}/")
    cookie = answer.headers["set-cookie"]
    assert "httponly" in cookie.lower()
    assert "samesite=strict" in cookie.lower()
    assert f"Path={served.access.root}/;" in cookie
    assert served.access.token not in cookie + answer.headers["location"]


def test_the_token_works_once(served: ServedPage) -> None:
    client = served.client()
    assert client.get("/").status_code == 200
    for again in (client.get(served.access.url), httpx.get(served.access.url)):
        assert again.status_code == 403
        assert "used already" in again.text
        assert "For a new address, end hermes-memory ui with Ctrl-C and start it again." in again.text
        assert "set-cookie" not in again.headers
    assert client.get("/").status_code == 200


def test_a_browser_that_stored_no_cookie_may_open_the_address_again(served: ServedPage) -> None:
    client = served.client()
    client.cookies.clear()
    assert client.get("/").status_code == 403
    assert client.get(served.access.url).status_code == 303
    assert client.get("/").status_code == 200


def test_of_two_browsers_with_the_token_only_one_gets_in(served: ServedPage) -> None:
    first, second = served.client(), served.client()
    statuses = [first.get("/").status_code, second.get("/").status_code, first.get("/").status_code]
    assert statuses == [403, 200, 403]
    assert first.get(served.access.url).status_code == 403


@pytest.mark.parametrize("order", ["{other}; {ours}", "{ours}; {other}", "{other};{ours};{other}"])
def test_cookies_of_other_programs_lock_nobody_out(served: ServedPage, order: str) -> None:
    """Cookies know no ports, so a browser sends those of each other program on this machine too."""
    ours = httpx.get(served.access.url).headers["set-cookie"].partition(";")[0]
    name, host = ours.partition("=")[0], served.origin.removeprefix("http://")
    people = f"{served.access.root}/people"
    others = ['theme={"a":"b"}', "flag", "=", "path=/x", "version=1", "expires=now", 'open="never closed']
    others += ["name=\xe9\xff", "a b=c", "; ;", f"{name}=wrong", name, f"{name}=", f'{name}="']
    for other in others:
        cookie = order.format(other=other, ours=ours)
        assert raw(served, "GET", people, {"Host": host, "Cookie": cookie})[0] == 200, other
        assert raw(served, "GET", people, {"Host": host, "Cookie": other})[0] == 403, other


@pytest.mark.parametrize("query", ["?token=wrong", "?token=", "", "?token=%F0%9F%98%80"])
def test_a_wrong_token_is_refused(served: ServedPage, query: str) -> None:
    answer = httpx.get(f"{served.origin}/{query}")
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert served.client().get("/").status_code == 200  # and does not use up the right one


@pytest.mark.parametrize("path", ["/", "/timeline", "/static/page.css", "/nothing"])
def test_nothing_is_answered_without_the_path_and_the_cookie(served: ServedPage, path: str) -> None:
    client = served.client()
    cookies = {"cookie": f"{COOKIE}={next(iter(client.cookies.values()))}"}
    roots = (
        "",
        "/",
        "/x",
        f"/{served.access.token}",
        served.access.root[:-1],
        f"{served.access.root}x",
        "/\N{SNOWMAN}",
    )
    for root in roots:
        assert client.get(served.origin + root + path, headers=cookies).status_code == 403, root
    assert httpx.get(served.root + path).status_code == 403
    assert httpx.get(served.root).status_code == 403
    assert httpx.get(served.root + path, headers={"cookie": f"{COOKIE}=wrong"}).status_code == 403


def test_a_server_on_another_port_gets_nothing_that_opens_the_page(served: ServedPage) -> None:
    """Browsers send the cookies of 127.0.0.1 to every port. This client does too."""
    client = served.client()
    secret = next(iter(client.cookies.values()))
    with other_program() as other:
        for path in ("/", "/timeline", "/static/page.css", f"/?token={served.access.token}"):
            client.get(other.origin + path)
    assert len(other.seen) == 4
    assert [text for text in other.seen if served.access.root in text or secret in text] == []
    assert client.get("/").status_code == 200  # and its own cookie of our name locks nobody out


@pytest.mark.parametrize("path", ["/", "/static/htmx.min.js", "/nothing", "/?token=wrong"])
def test_each_answer_has_the_headers_that_browsers_need(served: ServedPage, path: str) -> None:
    answer = served.client().get(path)
    assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_another_name_of_this_machine_is_refused(served: ServedPage) -> None:
    """DNS rebinding: a page of another site points its own name at 127.0.0.1."""
    port = served.origin.rpartition(":")[2]
    path = f"/?token={served.access.token}"
    for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{int(port) - 1}", ""):
        assert raw(served, "GET", path, {"Host": host})[0] in (400, 403)
    assert raw(served, "GET", path, {"Host": f"localhost:{port}"})[0] == 303


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.1:80", "localhost:80"])
def test_on_the_port_of_http_a_browser_may_leave_it_out(host: str) -> None:
    access = Access(80)
    assert access.refusal("GET", Headers({"host": host})) == ""
    assert access.refusal("POST", Headers({"host": host, "origin": f"http://{host}"})) == ""
    assert access.refusal("GET", Headers({"host": "evil.example"})) != ""
    assert access.refusal("POST", Headers({"host": host, "origin": "http://evil.example"})) != ""
    assert Access(8080).refusal("GET", Headers({"host": host})) != ""


def add(served: ServedPage, client: httpx.Client, **headers: str) -> httpx.Response:
    form = {"target": "memory", "content": "Likes tea"}
    return client.post("/notes/add", data=form, headers=headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_change_from_another_site_is_refused(served: ServedPage, headers: dict[str, str]) -> None:
    assert add(served, served.client(), **headers).status_code == 403
    assert served.memory.curated.entries("memory") == ()


def test_a_change_without_an_origin_is_refused(served: ServedPage) -> None:
    client = served.client()
    del client.headers["origin"]
    assert add(served, client).status_code == 403
    assert served.memory.curated.entries("memory") == ()


def test_a_read_from_another_site_is_refused_too(served: ServedPage) -> None:
    assert served.client().get("/", headers={"origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize("root", ["", "/wrong"])
def test_a_form_that_does_not_know_the_path_changes_nothing(served: ServedPage, root: str) -> None:
    form = {"target": "memory", "content": "Likes tea"}
    assert served.client().post(f"{served.origin}{root}/notes/add", data=form).status_code == 403
    assert served.memory.curated.entries("memory") == ()


def test_an_action_needs_a_form(served: ServedPage) -> None:
    assert served.client().get("/notes/add").status_code == 405


def test_a_form_that_is_too_large_is_refused(served: ServedPage) -> None:
    client = served.client()
    assert client.post("/notes/add", content=b"x" * 1_000_001).status_code == 403
    assert client.post("/notes/add", content=b"a=1&" * 60).status_code == 403
    assert add(served, client).status_code == 303


def test_a_browser_that_leaves_during_a_form_is_one_line_in_the_log(
    served: ServedPage, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    client = served.client()
    host, _, port = served.origin.removeprefix("http://").partition(":")
    head = (
        f"POST {served.access.root}/notes/add HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {served.origin}\r\n"
        f"Cookie: {COOKIE}={next(iter(client.cookies.values()))}\r\nContent-Length: 1000\r\n\r\ntarget=memory&con"
    )
    written = threading.Event()

    class Notice(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.set()

    logger = logging.getLogger("hermes_memory_ui")
    notice = Notice()
    logger.addHandler(notice)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode())
    try:
        assert written.wait(30)
    finally:
        logger.removeHandler(notice)
    assert add(served, client).status_code == 303
    messages = [
        (record.name, record.getMessage()) for record in caplog.records if record.levelno >= logging.WARNING
    ]
    assert messages == [
        (
            "hermes_memory_ui.server",
            "the browser left before a form for /notes/add had come; nothing was changed",
        )
    ]
    assert "Traceback" not in capfd.readouterr().err
    assert served.memory.curated.entries("memory") == ("Likes tea",)


def test_a_read_only_page_changes_nothing(serve: Serve) -> None:
    served = serve(read_only=True)
    client = served.client()
    answer = add(served, client)
    assert answer.status_code == 403
    assert "read-only" in answer.text
    assert served.memory.curated.entries("memory") == ()
    served.memory.change_memory("add", "memory", "Likes tea", by_person=True)
    page = client.get("/").text
    assert ">History</a>" in page
    assert 'method="post"' not in page
    assert ">Edit<" not in page


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("CONNECT", "example.org:443", {"host": "example.org:443"}),
        ("GET", "/", {"connection": "upgrade", "upgrade": "websocket"}),
        ("GET", "/", {"content-length": "many"}),
    ],
    ids=["connect", "websocket", "no number"],
)
def test_a_request_that_is_none_for_the_page_is_refused_and_prints_nothing(
    capfd: pytest.CaptureFixture[str], serve: Serve, method: str, target: str, headers: dict[str, str]
) -> None:
    served = serve()
    status, _ = raw(served, method, target, {"host": served.origin.removeprefix("http://")} | headers)
    assert status in (400, 403)
    assert served.client().get("/").status_code == 200
    assert "".join(capfd.readouterr()) == ""
