"""Which settings are asked, which answers are taken, and that every fault is named at once."""

from __future__ import annotations

import re

import pytest

from hermes_core import Field
from hermes_core.errors import ConfigError, SetupFailed
from hermes_core.setup.answers import Answers, parse_pairs, require_complete, unstorable_secrets

KEY = Field("api_key", env="X_API_KEY", secret=True, required=True, url="https://x.example/keys")
MODE = Field("mode", default="cloud", choices=("cloud", "self"))
SERVER = Field("server", required=True, when={"mode": "self"})
LIMIT = Field("limit", int, 5, minimum=1, maximum=50)
FIELDS = (KEY, MODE, SERVER, LIMIT)


def answers(**known: object) -> Answers:
    return Answers(FIELDS, {**{field.name: field.default for field in FIELDS}, **known})


def names(found: Answers) -> list[str]:
    return [field.name for field in found.asked()]


def test_a_setting_is_asked_only_when_the_answers_before_make_it_count() -> None:
    found = answers()
    assert names(found) == ["api_key", "mode", "limit"]
    found.give("mode", "self")
    assert names(found) == ["api_key", "mode", "server", "limit"]


def test_secrets_and_settings_go_to_different_places_and_types_are_right() -> None:
    found = answers()
    parse_pairs(found, ["api_key=k=1", "limit=7"])
    assert found.variables(secret=True) == {"X_API_KEY": "k=1"}
    assert found.settings == {"limit": 7}


def test_every_wrong_pair_is_named_at_once() -> None:
    with pytest.raises(SetupFailed) as told:
        parse_pairs(answers(), ["limt=3", "limit=99", "mode=local", "nothing"])
    for part in ("did you mean 'limit'", "up to 50", "'cloud', 'self'", "'nothing' is no NAME=VALUE"):
        assert part in str(told.value)


@pytest.mark.parametrize(
    ("name", "raw", "sentence"),
    [
        ("limit", "ten", "'limit' in the answer must be a whole number from 1 up to 50, is 'ten'"),
        ("limit", "010", "'limit' in the answer must be a whole number from 1 up to 50, is '010'"),
        ("limit", "1e9", "'limit' in the answer must be a whole number from 1 up to 50, is '1e9'"),
        ("limit", "nan", "'limit' in the answer must be a whole number from 1 up to 50, is 'nan'"),
        ("mode", "", "'mode' in the answer must be one of 'cloud', 'self', is ''"),
        ("modes", "self", "there is no setting 'modes', did you mean 'mode'?"),
        ("zebra", "1", "there is no setting 'zebra', its settings are api_key, mode, server, limit"),
    ],
)
def test_a_wrong_answer_is_refused_with_what_to_write(name: str, raw: str, sentence: str) -> None:
    found = answers()
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        found.give(name, raw)
    assert found.new == {}


def test_every_missing_setting_is_named_with_variable_and_address() -> None:
    with pytest.raises(SetupFailed) as told:
        require_complete(answers(mode="self"), "x")
    assert "api_key (X_API_KEY), get it at https://x.example/keys; server" in str(told.value)


def test_what_holds_already_is_not_missing() -> None:
    require_complete(answers(api_key="from the environment"), "x")


def test_a_secret_without_a_variable_is_told_and_not_taken() -> None:
    homeless = Field("token", secret=True)
    found = Answers((homeless,), {})
    assert unstorable_secrets(found.fields) == [homeless]
    with pytest.raises(SetupFailed, match="no place to keep it"):
        parse_pairs(found, ["token=x"])


def test_setup_does_not_ask_for_what_is_advanced_and_takes_it_when_it_is_given() -> None:
    answers = Answers((Field("url"), Field("names", dict, advanced=True)), {})
    parse_pairs(answers, ['names={"42": "mel"}'])
    assert [one.name for one in answers.asked()] == ["url"]
    assert answers.settings == {"names": {"42": "mel"}}
