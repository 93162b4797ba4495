"""Secrets don't leave for a provider; everything else does, unchanged."""

from __future__ import annotations

import copy
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.safety.redact import redact, redact_value
from tests.table import table

_A40 = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6kL9n"

# Written in halves, so that no scanner of source code takes them for the real thing.
PLANTED = {
    "openai": "sk-" + "proj-" + _A40,
    "anthropic": "sk-" + "ant-api03-" + _A40,
    "openrouter": "sk-" + "or-v1-" + "0123456789abcdef" * 4,
    "google": "AI" + "zaSyA1234567890abcdefghijklmnopqrstuv",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "github": "ghp_" + _A40[:36],
    "gitlab": "glpat-" + _A40[:20],
    "slack": "xoxb-" + "123456789012-" + _A40[:24],
    "stripe": "sk_" + "live_" + _A40[:24],
    "huggingface": "hf_" + _A40[:34],
    "telegram": "123456789:" + "AA" + _A40[:33],
    "discord": "M" + _A40[:23] + "." + _A40[:6] + "." + _A40[:27],
    "twilio": "SK" + "0123456789abcdef" * 2,
    "sendgrid": "SG." + _A40[:22] + "." + _A40,
    "npm": "npm_" + _A40[:36],
    "pypi": "pypi-" + "AgEIcHlwaS5vcmc" + _A40,
    "honcho": "hch-" + _A40,
    "mem0": "m0-" + _A40,
    "supermemory": "sm_" + _A40,
    "groq": "gsk_" + _A40,
    "vault": "hvs." + _A40,
    "atlassian": "ATATT3" + "xFfGF0" + _A40,
    "terraform": _A40[:14] + ".atlas" + "v1." + _A40,
    "nvidia": "nv" + "api-" + _A40,
    "notion": "secret_" + _A40 + "abc",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0." + _A40,
}


@table("kind", PLANTED)
def test_a_key_of_a_known_service_is_taken_out(kind: str) -> None:
    said = redact(f"Use {PLANTED[kind]}, it works.")
    assert said == f"Use [redacted:{kind}], it works."


@pytest.mark.parametrize(
    "name", ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
def test_a_private_key_block_is_taken_out_also_when_cut_short(name: str) -> None:
    body = "\nMIIEowIBAAKCAQEAx1+/abc=\nxyz012\n"
    whole = f"-----BEGIN {name}-----{body}-----END {name}-----"
    assert redact(f"key:\n{whole}\ndone") == "key:\n[redacted:private_key]\ndone"
    assert "MII" not in redact(f"-----BEGIN {name}-----{body}")


@table(
    ("said", "sent"),
    [
        ("postgres://app:hunter22@db:5432/x", "postgres://app:[redacted:password]@db:5432/x"),
        (
            "https://x.example/?a=1&access_token=abcdef123&b=2",
            "https://x.example/?a=1&access_token=[redacted:token]&b=2",
        ),
        (f"https://{PLANTED['github']}@host/x", "https://[redacted:github]@host/x"),
        (
            f"https://{PLANTED['github']}:hunter@host/x",
            "https://[redacted:github]:[redacted:password]@host/x",
        ),
        ("git+https://abc123def456abc123def456@host/x", "git+https://[redacted:token]@host/x"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [redacted:authorization]"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic [redacted:authorization]"),
        ('"X-Api-Key": "0123456789abcdef"', '"X-Api-Key": "[redacted:authorization]"'),
        ("curl -H 'bearer abcdef0123456789abcdef'", "curl -H 'bearer [redacted:token]'"),
        ("DB_PASSWORD=hunter22", "DB_PASSWORD=[redacted:password]"),
        ("password=StrongPassword123", "password=[redacted:password]"),
        ("pwd='nonesuch77', token: trueblue99", "pwd='[redacted:password]', token: [redacted:token]"),
        ("https://x.example/?token=string4you", "https://x.example/?token=[redacted:token]"),
        ("postgres://app:hunter@22@db:5432/x", "postgres://app:[redacted:password]@db:5432/x"),
        (
            r'{"body": "{\"password\": \"hunter22\", \"api_key\":\"abc\"}"}',
            r'{"body": "{\"password\": \"[redacted:password]\", \"api_key\":\"abc\"}"}',
        ),
        (r'"{\\\"token\\\": \\\"correct horse\\\"}"', r'"{\\\"token\\\": \\\"[redacted:token]\\\"}"'),
        ('password = "correct horse"', 'password = "[redacted:password]"'),
        ("api_key: abc123def456", "api_key: [redacted:api_key]"),
        ('{"client_secret": "s3cr3tvalue"}', '{"client_secret": "[redacted:secret]"}'),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = [redacted:secret]",
        ),
    ],
)
def test_a_secret_that_is_named_is_taken_out(said: str, sent: str) -> None:
    assert redact(said) == sent


@pytest.mark.parametrize(
    "text",
    [
        "The password is in the vault; the token budget is 4000.",
        "password: required, token: optional",
        "API_KEY=$API_KEY and token=${TOKEN} and password=<your password>",
        "token: str | None = None, password=None), api_key=optional, secret=required_field",
        "api_key = os.environ['KEY']; token: getenv(TOKEN)",
        "commit 1fd4393a8e0c5b7d2f6a9c3e1b4d7f0a2c5e8b1d fixes 123e4567-e89b-12d3-a456-426614174000",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "sk-learn-contrib-projects-and-friends are libraries",
        "http://localhost:8080/path and git@github.com:owner/repo.git",
        "ssh://ann12@host/x and https://an-agent-of-the-department@host/x",
        "see https://example.com/a?page=2&sort=asc&token=1",
        "max_tokens=4096, primary_key=id, keyboard: qwerty",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == text


@given(
    st.lists(
        st.sampled_from(
            [*PLANTED.values(), "password=", "Bearer ", "://a:b@c", " ", "x", '"', "token: ", "?key="]
        )
        | st.text(max_size=5),
        max_size=8,
    )
)
def test_redacting_twice_is_redacting_once(pieces: list[str]) -> None:
    once = redact("".join(pieces))
    assert redact(once) == once


def test_json_values_are_walked_deeply_and_copied() -> None:
    value = {
        "a": [{"b": PLANTED["github"], "n": 1, "none": None}],
        "api_key": "abcd1234",
        "password": {"type": "string"},
    }
    before = copy.deepcopy(value)
    assert redact_value(value) == {
        "a": [{"b": "[redacted:github]", "n": 1, "none": None}],
        "api_key": "[redacted:api_key]",
        "password": {"type": "string"},
    }
    assert value == before


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "sk-",
        "password=",
        "://",
        "-----BEGIN PRIVATE KEY-----",
        "eyJ",
        "token:",
        "Bearer ",
        "a.",
        "?key=",
    ],
)
def test_a_hostile_text_takes_time_in_proportion_to_its_length(unit: str) -> None:
    start = time.thread_time()
    redact(unit * (65_536 // len(unit)))
    assert time.thread_time() - start < 5
