"""The one check of values: what it takes, and its sentence for each kind of wrong value."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, get_origin

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Meta

from hermes_core import Field
from hermes_core.config import KEYS, load_config, override_config, parse_config, set_value
from hermes_core.config.schema import Range, checked, did_you_mean, expected, field_of, json_schema
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome
from tests.table import table

HUGE = int(f"0x1{'0' * 5000}", 16)
"""A whole number of more digits than Python writes."""

COUNT = Field("count", int, 3, minimum=1, maximum=50)
SHARE = Field("share", float, minimum=0, maximum=1)
TEXT = Field("text", default="plain")
MODE = Field("mode", choices=("auto", "off"))
ON = Field("on", bool, True)
NAMES = field_of("names", tuple[str, ...])
TABLE = Field("table", dict)
LEVELS = field_of("levels", list[Annotated[int, Meta(ge=0)]])


@table(
    ("field", "raw", "value"),
    [
        (COUNT, "12", 12),
        (COUNT, " 12 ", 12),
        (COUNT, 12.0, 12),
        (SHARE, 1, 1.0),
        (ON, "Yes", True),
        (ON, " off ", False),
        (ON, 0, False),
        (MODE, False, "off"),
        (MODE, "auto", "auto"),
        (TEXT, " a ", " a "),
        (NAMES, ("a", "b"), ["a", "b"]),
        (NAMES, '["a, b"]', ["a, b"]),
        (TABLE, '{"a": 1}', {"a": 1}),
        (LEVELS, ["1", 2], [1, 2]),
    ],
)
def test_a_value_is_read_in_its_type(field: Field, raw: Any, value: Any) -> None:
    read = checked(field, raw)
    assert (read, type(read)) == (value, type(value))


@table(
    ("field", "raw", "sentence"),
    [
        (COUNT, "many", "count must be a whole number from 1 up to 50, is 'many'; write for example 3"),
        (COUNT, 1.5, "count must be a whole number from 1 up to 50, is 1.5; write for example 3"),
        (COUNT, True, "count must be a whole number from 1 up to 50, is True; write for example 3"),
        (COUNT, 0, "count must be a whole number from 1 up to 50, is 0; write for example 3"),
        (COUNT, "51", "count must be a whole number from 1 up to 50, is '51'; write for example 3"),
        (COUNT, None, "count must be a whole number from 1 up to 50, is None; write for example 3"),
        (COUNT, [3], "count must be a whole number from 1 up to 50, is [3]; write for example 3"),
        (COUNT, "0x10", "count must be a whole number from 1 up to 50, is '0x10'; write for example 3"),
        (COUNT, "010", "count must be a whole number from 1 up to 50, is '010'; write for example 3"),
        (COUNT, HUGE, "count must be a whole number from 1 up to 50, is a value that is too large; "
                      "write for example 3"),
        (SHARE, HUGE, "share must be a number from 0 up to 1, is a value that is too large"),
        (SHARE, "nan", "share must be a number from 0 up to 1, is 'nan'"),
        (SHARE, float("nan"), "share must be a number from 0 up to 1, is nan"),
        (SHARE, float("-inf"), "share must be a number from 0 up to 1, is -inf"),
        (SHARE, "9" * 400, f"share must be a number from 0 up to 1, is '{'9' * 78}…"),
        (TEXT, 12, 'text must be a string, is 12; write for example "plain"'),
        (TEXT, ["a"], "text must be a string, is ['a']; write for example \"plain\""),
        (TEXT, datetime.date(2024, 5, 1),
         'text must be a string, is 2024-05-01; write for example "plain"'),
        (ON, 2, "on must be true or false, is 2; write for example true"),
        (ON, "perhaps", "on must be true or false, is 'perhaps'; write for example true"),
        (MODE, True, "mode must be one of 'auto', 'off', is True"),
        (MODE, ["auto"], "mode must be one of 'auto', 'off', is ['auto']"),
        (NAMES, '["a", 1]', "names must be a list, each item a string, is '[\"a\", 1]'"),
        (NAMES, "[a", "names must be a list, each item a string, is '[a'"),
        (NAMES, "a", "names must be a list, each item a string, is 'a'"),
        (NAMES, ["a", None], "names must be a list, each item a string, is ['a', None]"),
        (TABLE, "[1]", "table must be a JSON object, is '[1]'"),
        (TABLE, "{", "table must be a JSON object, is '{'"),
        (LEVELS, [1, -1], "levels must be a list, each item a whole number of at least 0, is [1, -1]"),
        (Field("key", int, secret=True), "k-123", "key must be a whole number, is ***"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_what_is_expected(field: Field, raw: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(field, raw)
    assert str(caught.value) == sentence


@table(("field", "raw"), [(COUNT, "12"), (ON, 1), (ON, "true"), (SHARE, "0.5"), (TABLE, "{}"), (NAMES, "[]")])
def test_a_strict_check_converts_no_text(field: Field, raw: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{field.name} must be "):
        checked(field, raw, strict=True)


def test_a_check_of_its_own_says_what_the_value_must_be() -> None:
    def refuse(value: str) -> None:
        if "@" not in value:
            raise ValueError(value)

    field = Field("mail", form="an address with @", check=refuse)
    assert checked(field, "ann@home.test") == "ann@home.test"
    with pytest.raises(ConfigError, match="mail must be an address with @, is 'ann'"):
        checked(field, "ann")


@table(
    ("hint", "field", "words"),
    [
        (Annotated[int, Meta(ge=1), "how many"], Field("x", int, help="how many", minimum=1),
         "a whole number of at least 1"),
        (Annotated[float, Range(0, 1)], Field("x", float, minimum=0, maximum=1, clamp=True),
         "a number from 0 up to 1"),
        (Literal["a", "b"] | None, Field("x", choices=("a", "b")), "one of 'a', 'b'"),
        (Optional[bool], Field("x", bool), "true or false"),  # noqa: UP045 (both forms are read)
        (tuple[str, ...], Field("x", list[str]), "a list, each item a string"),
        (tuple[Any, ...], Field("x", list), "a JSON list"),
        (list[Annotated[int, Meta(le=9)]], Field("x", list[int], maximum=9),
         "a list, each item a whole number of at most 9"),
        (dict[str, Any], Field("x", dict), "a JSON object"),
        (Annotated[str, {"secret": True, "env": "KEY"}], Field("x", secret=True, env="KEY"), "a string"),
    ],
)  # fmt: skip
def test_an_annotation_describes_a_setting(hint: Any, field: Field, words: str) -> None:
    assert field_of("x", hint) == field
    assert expected(field) == words


@table("hint", [Path, dict[str, int], list[list[int]], int | str, None])
def test_an_annotation_that_describes_none_is_refused(hint: Any) -> None:
    with pytest.raises(TypeError, match="is no type of a setting"):
        field_of("x", hint)


def test_a_number_without_a_range_has_a_schema_for_models() -> None:
    assert json_schema(Field("x", list, help="any")) == {"type": "array", "items": {}, "description": "any"}
    assert json_schema(COUNT) == {"type": "integer", "minimum": 1, "maximum": 50}


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.text(st.characters(categories=["Cs", "Nd", "Ps", "Pe"]))
    | st.dates()
    | st.binary()
    | st.sampled_from([10**400, "[" * 100_000, "true", "1e400", "NaN", "[1]", '{"a": 1}']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
)


@example(field=TABLE, raw="[" * 100_000, strict=False, clamp=False)
@example(field=NAMES, raw="[" * 100_000, strict=False, clamp=False)
@given(
    field=st.sampled_from([COUNT, SHARE, TEXT, MODE, ON, NAMES, TABLE, LEVELS, *KEYS.values()]),
    raw=ANYTHING,
    strict=st.booleans(),
    clamp=st.booleans(),
)
def test_any_value_is_read_in_its_type_or_refused_in_one_line(
    field: Field, raw: Any, strict: bool, clamp: bool
) -> None:
    refusal = ""
    try:
        value = checked(field, raw, strict=strict, clamp=clamp)
    except ConfigError as exc:
        refusal = exc.message
    if refusal:
        assert refusal.startswith(f"{field.name} must be ")
        assert len(refusal.splitlines()) == 1
    else:
        assert isinstance(value, get_origin(field.type) or field.type)
        assert checked(field, value, strict=True, clamp=clamp) == value


def test_a_close_name_is_offered() -> None:
    assert did_you_mean("limt", ["limit", "mode"], "see --help") == "did you mean 'limit'?"
    assert did_you_mean("zebra", ["limit", "mode"], "see --help") == "see --help"


@table(
    ("text", "sentence"),
    [
        ("memory:\n  provider: yes",
         "line 2: memory.provider must be a string, is True; write for example `provider: \"yes\"`, or delete the line"),
        ("memory:\n  provider: 010",
         "line 2: memory.provider must be a string, is 8; write for example `provider: \"010\"`, or delete the line"),
        ("memory:\n  provider: 12:30",
         "line 2: memory.provider must be a string, is 750; write for example `provider: \"12:30\"`, or delete the line"),
        ("memory:\n  provider: 2024-05-01",
         "line 2: memory.provider must be a string, is 2024-05-01; "
         "write for example `provider: \"2024-05-01\"`, or delete the line"),
        ("memory:\n  provider: [mem0]",
         "line 2: memory.provider must be a string, is ['mem0']; "
         "write for example `provider: \"\"`, or delete the line"),
        ("recall:\n  deadline: .nan",
         "line 2: recall.deadline must be a number from 0.05 up to 600, is nan; "
         "write for example `deadline: 5.0`, or delete the line"),
        (f"recall:\n  deadline: 0x{'f' * 5000}",
         "line 2: recall.deadline must be a number from 0.05 up to 600, is a value that is too large; "
         "write for example `deadline: 5.0`, or delete the line"),
        ("providers:\n  block: 2024-05-01",
         "line 2: providers.block must be a list, each item a string, is 2024-05-01; delete the line"),
        ("memory:\n  profile_fields: [{name: age, type: date}]",
         "line 2: memory.profile_fields must be a list of fields, each {name, type, description}, where type is string, "
         "integer, number or boolean, is [{'name': 'age', 'type': 'date'}]; delete the line"),
    ],
)  # fmt: skip
def test_a_value_that_yaml_reads_as_another_is_named_with_what_to_write(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert str(caught.value) == f"config.yaml {sentence}"


@table(
    ("key", "value", "sentence"),
    [
        ("recall.budget", "many", "recall.budget must be a whole number of at least 0, is 'many'"),
        ("recall.budget", -1, "recall.budget must be a whole number of at least 0, is -1"),
        ("recall.budgt", 5, "'recall.budgt' is no key of config.yaml; did you mean 'recall.budget'?"),
        ("recall.semantic", "always", "recall.semantic must be one of 'auto', 'off', is 'always'"),
    ],
)
def test_a_key_is_refused_in_one_wording_wherever_it_is_set(
    tmp_path: Path, key: str, value: object, sentence: str
) -> None:
    block, name = key.split(".")
    with pytest.raises(ConfigError) as in_code:
        override_config(parse_config(""), {block: {name: value}})
    with pytest.raises(ConfigError) as in_file:
        set_value(HermesHome(tmp_path), key, value)  # type: ignore[arg-type]
    assert str(in_code.value).removeprefix("config: ").startswith(sentence)
    assert str(in_file.value).startswith(sentence)


def test_toolsets_of_any_platform_can_be_set_in_code() -> None:
    config = override_config(parse_config(""), {"enabled_toolsets": {"my-app": ["todo"], "cli": []}})
    found = config.enabled_toolsets
    assert (found.get("my-app"), found.get("cli"), found.get("telegram")) == (("todo",), (), None)


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="HERMES_SEMANTIC must be one of 'auto', 'off', is 'sometimes'"):
        load_config(HermesHome(tmp_path), {"HERMES_SEMANTIC": "sometimes"})


def test_every_key_has_a_text_and_a_default_that_it_takes() -> None:
    for key in KEYS.values():
        assert key.help.endswith("."), key.name
        if key.default is not None:
            plain = list(key.default) if isinstance(key.default, tuple) else key.default
            assert checked(key, key.default, strict=True) == plain
