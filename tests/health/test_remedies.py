"""What `doctor` advises belongs to the cause, with the address and the setting, at every provider with a server."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from hermes_core import HermesHome, open_memory
from hermes_core.health.finding import Finding
from hermes_core.health.provider import check_provider, examine_provider, start_providers, trial_session
from hermes_memory_testing import Raw, StandIn

PAGE = Raw(b"<!DOCTYPE html><html><title>Please sign in</title></html>", {"Content-Type": "text/html"})


class Served(NamedTuple):
    """A provider with a server: the setting of its address, the variable of its key, and further settings."""

    setting: str
    key: str
    more: dict[str, Any] = {}  # noqa: RUF012  never changed


PROVIDERS = {
    "honcho": Served("baseUrl", "HONCHO_API_KEY"),
    "mem0": Served("host", "MEM0_API_KEY", {"mode": "selfhosted"}),
    "openviking": Served("endpoint", "OPENVIKING_API_KEY"),
    "hindsight": Served("api_url", "HINDSIGHT_API_KEY", {"mode": "local_external"}),
    "retaindb": Served("base_url", "RETAINDB_API_KEY"),
    "supermemory": Served("base_url", "SUPERMEMORY_API_KEY"),
}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


@pytest.fixture(params=PROVIDERS)
def doctor(request: pytest.FixtureRequest, hermes_home: HermesHome) -> Callable[..., list[Finding]]:
    """Examine a provider at an address, and return what failed."""
    name, served = request.param, PROVIDERS[request.param]

    def examine(url: str, *, has_key: bool = True) -> list[Finding]:
        hermes_home.path.mkdir(exist_ok=True)
        settings = {served.setting: url, **served.more}
        hermes_home.provider_json(name).write_text(json.dumps(settings))
        hermes_home.config_yaml.write_text(f"memory:\n  provider: {name}\n")
        hermes_home.env_file.touch(mode=0o600)
        # A service of somebody else that needs a key is not even started without one.
        hermes_home.env_file.write_text(f"{served.key}=a-key-of-ours\n" if has_key else "")
        with open_memory(hermes_home) as memory:
            trial = trial_session(hermes_home, "trial")
            start_providers(memory.manager, trial)
            found = [
                *examine_provider(memory, memory.internals.selection.entries()),
                *check_provider(memory.manager, name, trial),
            ]
        return [finding for finding in found if finding.failed]

    examine.served = served  # type: ignore[attr-defined]
    return examine


def answer(server: StandIn, reply: Any) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        server.route(method, "/*", lambda request: reply)


def remedy_of(doctor: Callable[..., list[Finding]], url: str, **options: Any) -> str:
    found = doctor(url, **options)
    assert found, "doctor finds nothing"
    remedies = {finding.remedy for finding in found}
    assert not any("start the backend if it is down" in remedy for remedy in remedies), found
    assert not any(finding.remedy in finding.detail for finding in found), found
    (remedy,) = {finding.remedy for finding in found if finding.what.startswith(("provider", "self-test"))}
    served = doctor.served  # type: ignore[attr-defined]
    assert url in remedy, remedy
    assert served.setting in remedy or served.key in remedy, remedy
    return remedy


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((401, {"detail": "invalid token"}), "wrong, expired or revoked"),
        ((403, {"detail": "not permitted"}), "rights"),
        ((429, Raw(b"{}", {"Retry-After": "17"})), "wait 17 s"),
        ((200, PAGE), "login page"),
        ((403, PAGE), "login page"),
        ((302, Raw(b"", {"Location": "https://sso.example/login"})), "login page"),
        ((200, {"hello": "world"}), "another program"),
        ((404, {"detail": "Not Found"}), "its address"),
        ((500, {"detail": "the embedding model is down"}), "embedder"),
        ((500, {"detail": "[Errno 28] No space left on device"}), "free space"),
        ((500, {"detail": "An unexpected error occurred"}), "log"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_has_its_remedy(
    doctor: Callable[..., list[Finding]], server: StandIn, reply: Any, words: str
) -> None:
    answer(server, reply)
    assert words in remedy_of(doctor, server.url)


def test_a_missing_key_is_told_from_a_wrong_one(
    doctor: Callable[..., list[Finding]], server: StandIn
) -> None:
    answer(server, (401, {"detail": "no token"}))
    assert "it is empty" in remedy_of(doctor, server.url, has_key=False)


def test_nobody_at_the_port(doctor: Callable[..., list[Finding]]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert "is it running?" in remedy_of(doctor, f"http://127.0.0.1:{free.getsockname()[1]}")


def test_https_to_a_server_without_it(doctor: Callable[..., list[Finding]], server: StandIn) -> None:
    assert "http:// or https://" in remedy_of(doctor, server.url.replace("http:", "https:"))
