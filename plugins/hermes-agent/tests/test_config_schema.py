from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes_core.kit.settings import load_settings
from hermes_memory_foreign.adapter import field_of, settings_of
from tests.table import table


def field(**raw: Any) -> Any:
    return field_of({"key": "k", **raw})


@table(
    ("raw", "kind", "default", "choices"),
    [
        # A type that is named, in any of its spellings.
        ({"type": "integer", "default": "5"}, int, 5, ()),
        ({"type": "number", "default": 1}, float, 1.0, ()),
        ({"type": "Boolean", "default": "true"}, bool, True, ()),
        ({"type": bool}, bool, None, ()),
        ({"type": "string", "default": 8080}, str, "8080", ()),
        ({"type": "integer", "default": ""}, int, None, ()),
        ({"type": "integer", "default": 2.5}, int, None, ()),
        ({"type": "something new", "default": "x"}, str, "x", ()),
        # None is named: the choices tell, then the default.
        ({"default": True}, bool, True, ()),
        ({"default": 10}, int, 10, ()),
        ({"default": 0.5}, float, 0.5, ()),
        ({"default": "10"}, str, "10", ()),
        ({"default": None}, str, None, ()),
        ({"default": ["a"]}, str, None, ()),
        ({"choices": [1, 5], "default": 5}, int, 5, ("1", "5")),
        ({"choices": [0.5, 1]}, float, None, ("0.5", "1.0")),
        ({"choices": [True, False], "default": False}, bool, False, ()),
        ({"choices": ["true", "false"], "default": "false"}, str, "false", ("true", "false")),
        ({"choices": ["cloud", 3]}, str, None, ("cloud", "3")),
        ({"choices": ["cloud", "local"], "default": "elsewhere"}, str, None, ("cloud", "local")),
        # Both are given and have to agree.
        ({"type": "boolean", "choices": ["true", "false"], "default": "true"}, bool, True, ()),
        ({"type": "integer", "choices": ["1", "5"], "default": "5"}, int, 5, ("1", "5")),
        ({"type": "number", "choices": ["0.50", "1"]}, float, None, ("0.5", "1.0")),
        ({"type": "integer", "choices": ["low", "high"]}, str, None, ("low", "high")),
        # Choices with labels.
        ({"choices": [{"value": "a", "label": "A"}, ["b", "B"]]}, str, None, ("a", "b")),
        ({"choices": {"a": "A", "b": "B"}}, str, None, ("a", "b")),
        ({"choices": "abc"}, str, None, ()),
    ],
)  # fmt: skip
def test_a_setting_has_the_type_that_it_means(raw: Any, kind: Any, default: Any, choices: Any) -> None:
    made = field(**raw)
    assert (made.type, made.default, made.choices) == (kind, default, choices)
    assert type(made.default) in (kind, type(None))


@pytest.mark.parametrize(
    ("raw", "answers"),
    [
        ({"type": "number", "choices": ["0.50", "1"]}, (0.5, "1")),
        ({"choices": [1, 5]}, (1, "5")),
        ({"type": "boolean", "choices": ["true", "false"]}, (True, "false", "yes")),
        ({"choices": ["true", "false"]}, ("true",)),
        ({"type": "integer", "minimum": "1", "maximum": 9}, (1, "9")),
    ],
)
def test_every_choice_can_be_chosen(raw: Any, answers: tuple[Any, ...], tmp_path: Path) -> None:
    for answer in answers:
        load_settings((field(**raw),), tmp_path, "duck", overrides={"k": answer})


@pytest.mark.parametrize(
    ("raw", "name", "value"),
    [
        ({"type": "secret"}, "secret", True),
        ({"secret": "false"}, "secret", False),
        ({"required": "yes"}, "required", True),
        ({"env_var": ["A_KEY", "B_KEY"]}, "env", "A_KEY"),
        ({"env_var": None}, "env", ""),
        ({"type": "integer", "minimum": "1"}, "minimum", 1.0),
        ({"type": "integer", "maximum": "many"}, "maximum", None),
        ({"minimum": 3}, "minimum", None),
        ({"when": {"mode": "x", "list": [1]}}, "when", {"mode": "x"}),
        ({"when": "mode"}, "when", {}),
    ],
)
def test_what_else_is_declared_is_read_as_it_is_meant(raw: Any, name: str, value: Any) -> None:
    assert getattr(field(**raw), name) == value


def test_a_key_that_comes_twice_counts_once_and_the_first() -> None:
    class Wrapped:
        def get_config_schema(self) -> Any:
            return [{"key": "a", "default": 1}, {"key": "b"}, {"key": "a", "default": 2}, {"key": ""}, "c"]

    assert [(one.name, one.default) for one in settings_of(Wrapped())] == [("a", 1), ("b", None)]
