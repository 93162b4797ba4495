"""Keys of each known format are redacted wherever they stand, and text that only looks random is not."""

from __future__ import annotations

import base64
import hashlib
import random
import re
import re._constants as kinds  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import string
import time
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.safety.key_formats import SHORT_WORDS, START, KeyFormat, key_formats, services, without_keys
from hermes_core.safety.redact import redact, secrets_in
from tests.table import table

FORMATS = [form for form in key_formats() if form.kind != "private_key"]  # the only ones with white space
MADE_OF = string.ascii_letters + string.digits + "_-./+=~"


def sample(tree: Any, draw: random.Random) -> str:
    """Return a text that matches a parsed pattern, apart from what it looks ahead at."""
    return "".join(_sample_node(kind, value, draw) for kind, value in tree)


def _sample_node(kind: Any, value: Any, draw: random.Random) -> str:
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.IN:
        return draw.choice([letter for letter in MADE_OF if _is_in(value, letter)])
    if kind is kinds.BRANCH:
        return sample(draw.choice(value[1]), draw)
    if kind is kinds.SUBPATTERN:
        return sample(value[-1], draw)
    if kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
        least, most, inner = value
        return "".join(sample(inner, draw) for _ in range(draw.randint(least, min(most, least + 3))))
    if kind is kinds.ASSERT and value[0] < 0:  # what stands before the key
        return sample(value[1], draw)
    assert kind in (kinds.ASSERT, kinds.ASSERT_NOT, kinds.AT), kind
    return ""


def _is_in(members: Any, letter: str) -> bool:
    for kind, value in members:
        if kind is kinds.LITERAL and chr(value) == letter:
            return True
        if kind is kinds.RANGE and value[0] <= ord(letter) <= value[1]:
            return True
        if kind is kinds.CATEGORY:
            digits = string.digits + ("" if value is kinds.CATEGORY_DIGIT else string.ascii_letters + "_")
            if letter in digits:
                return True
    return False


def keys_of(form: KeyFormat, count: int) -> list[str]:
    """Return random keys of a format, always the same."""
    draw, tree = random.Random(form.pattern), parser.parse(form.pattern.replace(START, r"\b"))
    texts = (sample(tree, draw) for _ in range(2000))
    keys = [
        text for _, text in zip(range(count), filter(re.compile(form.pattern).search, texts), strict=False)
    ]
    assert len(keys) == count
    return keys


def name_of(form: KeyFormat) -> str:
    return f"{form.kind}-{''.join(form.marks)[:12]}"


PLACES = (
    "{}",
    "Use {}, it works.",
    "密钥{}在这里",
    '{{"key": "{}"}}',
    r'"{{\"lines\": \"one\n{}\"}}"',
    r"\u5bc6{}",
    "KEY={}\n",
    "app.telegram.bot.key={}",
    "Authorization: Bearer {}",
    "X-Auth: {}",
    "https://api.example.com/v1/{}/getMe",
    "https://api.example.com/?text=key%20{}",
    "https://api.example.com/#key%3D{}",
    "\x1b[31m{}\x1b[0m",
    "[key]({})",
    "<{}>",
    "a={};b=c",
)
"""Places where keys stand in real texts: sentences, files, headers, addresses, logs."""

BEHIND_LETTERS = ("bot{}", "key_{}", "MYTOKEN{}")


def is_shown(form: KeyFormat, text: str) -> list[str]:
    """Return the places where the key in `text` is not redacted."""
    match = re.search(form.pattern, text)
    assert match is not None
    begin = form.pattern.removeprefix("(?a)")
    # A format that begins with a lookbehind says itself where its keys stand.
    places = PLACES[:2] if begin.startswith("(?<") else PLACES
    if not begin.startswith(("(?<", START)):
        places += BEHIND_LETTERS
    return [place for place in places if match[0] in redact(place.format(text))]


def test_a_key_of_each_format_is_redacted() -> None:
    shown = [(name_of(form), text, is_shown(form, text)) for form in FORMATS for text in keys_of(form, 2)]
    assert [line for line in shown if line[2]] == []


_RANDOM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6kL9n"
# Each with the number of characters behind it.
MASKED_BY_HERMES_AGENT = {
    **dict.fromkeys(("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "pplx-", "fal_", "fc-"), 12),
    **dict.fromkeys(("hf_", "r8_", "npm_", "dop_v1_", "doo_v1_", "tvly-", "exa_", "gsk_", "syt_", "sk-"), 12),
    **dict.fromkeys(("retaindb_", "hsk-", "mem0_", "brv_", "ntn_", "pk-lf-", "bb_live_", "xapp-1-"), 12),
    **dict.fromkeys(("glpat-", "gloas-", "gldt-", "glrt-", "glrtr-", "glcbt-", "glptt-", "glft-"), 12),
    **dict.fromkeys(("glimt-", "glagent-", "glsoat-", "glffct-", "glwt-", "GR1348941", "xoxb-"), 12),
    **dict.fromkeys(("sk_live_", "sk_test_", "rk_live_", "sk_", "SG.", "pypi-", "sk-ws-"), 16),
    **dict.fromkeys(("am_", "am_org_", "gAAAA"), 20),
    **dict.fromkeys(("AIza", "xai-", "fw-", "fw_", "fpk_"), 30),
    "eyJhbGciOiJIUzI1NiJ9.": 20,
    "eyJhbGciOiJkaXIi": 20,
}


@table("prefix", MASKED_BY_HERMES_AGENT)
def test_each_prefix_that_hermes_agent_masks_is_masked(prefix: str) -> None:
    key = prefix + _RANDOM[: MASKED_BY_HERMES_AGENT[prefix]]
    assert [place for place in PLACES if key in redact(place.format(key))] == []


TELEGRAM = "123456789:" + "AA" + _RANDOM[:33]


@pytest.mark.parametrize(
    "text",
    [
        f"HTTPStatusError: 401 for url 'https://api.telegram.org/bot{TELEGRAM}/getMe'",
        f"HTTPSConnectionPool(host='api.telegram.org', port=443): Max retries exceeded with url: /bot{TELEGRAM}/sendMessage",
        f'"POST /bot{TELEGRAM}/getUpdates HTTP/1.1" 200',
        f"https://api.telegram.org/file/bot{TELEGRAM}/photos/file_1.jpg",
        f"https%3A%2F%2Fapi.telegram.org%2Fbot{TELEGRAM}%2FgetMe",
    ],
)
def test_a_telegram_token_in_an_address_is_masked(text: str) -> None:
    assert secrets_in(text) == ("telegram",)
    assert TELEGRAM[12:] not in redact(text)


def test_a_hostile_text_takes_time_in_proportion_to_its_length() -> None:
    durations = {}
    for form in FORMATS:
        key = keys_of(form, 1)[0]
        start = time.thread_time()
        for unit in (key[:3], key[: len(key) // 2], key[:-1] + "!", *form.marks):
            re.compile(form.pattern).search(unit * (30_000 // len(unit)))
        durations[name_of(form)] = time.thread_time() - start
    assert {name: seconds for name, seconds in durations.items() if seconds >= 3} == {}


@pytest.mark.parametrize(
    "text",
    [
        "datadog ee3bbecdd1122461baa1b69ccc620b0d",
        "Datadog: ee3bbecdd1122461baa1b69ccc620b0d",
        "the twilio auth token c47367aa42682f436ba2c4eec546aa2c.",
        "Exa key = 05264736-7cf1-b77e-d6d9-15b30bc63818",
        "EXA_API_KEY 05264736-7cf1-b77e-d6d9-15b30bc63818",
        "cloudflare token is `NAT8iisPIFrT43ClceIkCUaAL6mk2SiRjxv1g119`",
        f"eth key: 0x{'3d6be201db049c16' * 4}",
    ],
)
def test_a_key_without_a_shape_is_redacted_after_the_name_of_its_service(text: str) -> None:
    assert secrets_in(text)


def test_the_name_of_a_service_is_one_word_in_lower_case() -> None:
    assert all(re.fullmatch("[a-z0-9]{3,20}", name) for name in services())


@given(st.text(alphabet="ab \n", max_size=60))
def test_short_words_are_distinguished_from_long_words(text: str) -> None:
    passed = re.match(SHORT_WORDS, text.replace("\n", " "))
    assert bool(passed) == all(len(word) < 15 for word in text.split())


@given(st.text(alphabet="ab \t\u00a0\u3000", max_size=60))
def test_words_with_another_space_between_them_are_looked_at(text: str) -> None:
    assert not re.match(SHORT_WORDS, text) or all(len(word) < 15 for word in re.split(" ", text))


def test_no_key_is_too_short_to_be_looked_for() -> None:
    keys = [(form, text) for form in FORMATS for text in keys_of(form, 5)]
    assert [(name_of(form), text) for form, text in keys if re.match(SHORT_WORDS, text)] == []
    marked = [(form, text) for form, text in keys if form.marks]
    assert [(name_of(f), text) for f, text in marked if not any(mark in text for mark in f.marks)] == []


@pytest.mark.parametrize(
    "text",
    [
        "heroku pushed commit 1fd4393a8e0c5b7d2f6a9c3e1b4d7f0a2c5e8b1d to the branch",
        "https://trello.com/c/aB3dE6gH9jK2mN5pQ8sT1vW4/the-card-of-today",
        "sent to 0x52908400098527886E0F7030069857D2E4169EE7 on ethereum 0x52908400098527886E0F7030069857D2E4169EE7",
        "transaction 0x5c504ed432cb51138bcf09aa5e8a410dd4a1e204ef84bfed1be16dfba1b22060",
        "spreadsheets/d/1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms/edit",
        "/nix/store/3n58xw4373jp0ljirf06d8077j15pc4j-glibc-2.37-8/lib/libc.so.6",
        "/usr/lib/python3.11/site-packages/live_test_of_the_whole_machine_0123456789.py",
        "integrity sha512-7gDqhRXMMTzRrbK3lRYXkVJ0dlNz2JtQcG6TQHqSNBlXSYQ4ZzYJ0fPmJ7vVX0Uo8qW2ZQXWJrjZ8QXQxQ2oVg==",
        "test_no_key_is_too_short_to_be_looked_for and live_migration_2024_of_the_database",
        "The pa-trons and fw_update_check_for_version_12345",
        "task-20240501-deploy-production, risk-2024-assessment-of-the-year, desk-0123456789-in-room-12",
        "sk-learn-1.4.2-for-python, npm_config_user_agent_2, hf_hub_download_from_revision_2024, exa_mples_of_2024",
        "1700000000:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "jsonschema/_keywords.py,sha256=r8_DrqAfn6QLwQnmXEggveiSU-UaIL2p2nuPINelfFc,14949",
        "cursor=eyJpZCI6MTIzNDU2Nzg5MCwib2Zmc2V0Ijo0MH0",
    ],
)
def test_text_that_only_looks_random_stays(text: str) -> None:
    assert redact(text) == text


def test_pictures_hashes_and_ids_stay() -> None:
    draw = random.Random(1)
    for _ in range(50):
        data = draw.randbytes(3000)
        digest = hashlib.sha256(data)
        for text in (
            f"data:image/png;base64,{base64.b64encode(data).decode()}",
            base64.b32encode(data).decode(),
            f"{uuid.UUID(bytes=data[:16])} {digest.hexdigest()} {digest.hexdigest()[:40]} {data[:16].hex()}",
        ):
            assert without_keys(text) == text
