"""Our own JSON Lines, and the reading of files in general, without any extension."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.errors import ImportFailed
from hermes_core.loader.extensions import Extensions
from hermes_memory_importers import ImportedMessage, ImportedSession, SkipLog, split_turns, stream
from hermes_memory_importers import read_file as read_any_file
from hermes_memory_importers.stream import read_records, read_values

LINE = {"session": "a", "role": "user", "content": "hi"}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def file(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "chats.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def read_file(path: Path, wanted: str = "auto") -> list[ImportedSession]:
    return read_any_file(path, wanted, Extensions())


@pytest.mark.parametrize(
    "data",
    [
        LINE,
        f"{json.dumps(LINE)}\n{json.dumps(LINE)}\n",
        json.dumps(LINE) + "\r\n\r\n" + json.dumps(LINE),
        "\ufeff" + json.dumps(LINE),
    ],
)
def test_json_lines_are_recognised(tmp_path: Path, data: object) -> None:
    assert [session.source for session in read_file(file(tmp_path, data))] == ["jsonl"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "the file is empty"),
        ("hello", "line 1: it is no JSON, expecting value"),
        ('{"a": 1,\n"b"}', "line 2: it is no JSON, expecting ':' delimiter"),
        ('{"session": "a", "role": "user", "content": "x"}\n{"session"', "line 2: it is no JSON"),
        ([], "no known format: it begins with 'list'"),
        ({"a": 1}, r"no known format: it begins with \['a'\]"),
        ([LINE], "the format 'jsonl' has one object a line"),
        (
            {"session": "a", "role": "user", "content": "x", "timestamp": 10**400},
            "line 1, timestamp: expected",
        ),
        (
            f"{json.dumps(LINE)}\n{json.dumps({'role': 'user', 'content': 'x'})}",
            "line 2: expected a 'session'",
        ),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5000, "line 1: it can't be read as JSON"),
    ],
)
def test_a_fault_names_file_place_and_what_was_expected(tmp_path: Path, data: object, message: str) -> None:
    with pytest.raises(ImportFailed, match=message) as caught:
        read_file(file(tmp_path, data))
    assert caught.value.message.startswith(repr(str(tmp_path / "chats.json")))
    assert caught.value.remedy


def test_what_can_not_be_opened_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(ImportFailed, match="can't be read"):
            read_file(path)
    with pytest.raises(ImportFailed, match="'xml' is no format"):
        read_file(tmp_path, "xml")


def test_a_turn_begins_where_the_person_speaks_after_an_answer() -> None:
    roles = {"a": "assistant", "u": "user", "t": "tool"}
    turns = split_turns(ImportedMessage(roles[letter], letter) for letter in "auuaatua")
    assert ["".join(m.content for m in turn.messages) for turn in turns] == ["a", "uuaat", "ua"]


def test_a_second_reading_gives_the_same_ids_and_a_grown_file_keeps_them(tmp_path: Path) -> None:
    more = {**LINE, "role": "assistant", "content": "more"}
    first = read_file(file(tmp_path, json.dumps(LINE)))
    grown = read_file(file(tmp_path, f"{json.dumps(LINE)}\n{json.dumps(more)}"))
    other = read_file(file(tmp_path, {**LINE, "content": "another conversation that is also called a"}))
    assert first[0].id == grown[0].id != other[0].id


def test_fields_of_a_line_reach_the_message(tmp_path: Path) -> None:
    line = {**LINE, "timestamp": "2024-05-01T10:00:00Z", "speaker": "Ann", "ref": "D1:3", "title": "Tea"}
    (session,) = read_file(file(tmp_path, line))
    message = session.turns[0].messages[0]
    assert (message.speaker, message.ref, message.timestamp) == ("Ann", "D1:3", 1714557600.0)
    assert (session.title, session.started_at) == ("Tea", 1714557600.0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_file_that_is_refused_is_closed_while_the_exception_is_kept(tmp_path: Path) -> None:
    path = file(tmp_path, [{"role": "admin", "name": "Ann"}])
    with pytest.raises(ImportFailed, match="no known format") as kept:
        read_file(path)
    files = [entry.resolve() for entry in Path("/proc/self/fd").iterdir()]
    assert path.resolve() not in files
    assert kept.value.__traceback__ is not None


# ------------------------------------------------------------------------------------------------------------ documents


@given(st.lists(JSON, max_size=5), st.sampled_from([None, 1]), st.sampled_from([1, 3, 2**16]))
def test_the_elements_of_a_list_come_as_a_parser_gives_them(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], indent: int | None, chunk: int
) -> None:
    path = tmp_path_factory.mktemp("list") / "list.json"
    path.write_text(json.dumps(values, indent=indent, ensure_ascii=bool(indent)), "utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "CHUNK_BYTES", chunk)
        try:
            path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            with pytest.raises(ImportFailed, match="is not UTF-8"):
                list(read_values(path))
        else:
            assert list(read_values(path)) == json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("chunk", [1, 7, 2**16])
@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        (b' {"a": "b,c"} ', 1, ""),
        (b"\xef\xbb\xbf[1, 2]", 2, ""),
        (b"123", 1, ""),
        (b"[]", 0, ""),
        (b"[1,\n2", 2, "line 2: it is no JSON"),
        (b"[1,\n\n2 3]", 2, "line 3: it is no JSON, expecting ',' delimiter"),
        (b"[1,]", 1, "line 1: it is no JSON, expecting value"),
        (b"[1]\n]", 1, "line 2: it is no JSON, extra data"),
        (b'{"a": 1}\n{"a": 2}', 1, "line 2: it is no JSON, extra data"),
        (b'[{"a": 1}, {"b": "' + b"x" * 40, 1, "line 1: it is no JSON, unterminated string"),
        (b'[{"a": 1},\n{"b": x' + b" " * 40 + b"}]", 1, "line 2: it is no JSON, expecting value"),
        (b'["\xc3\xa9", "\xff", 3]', 1, "byte 8 is not UTF-8"),
        (b'["\xc3\xa9", "\xc3', 1, "byte 8 is not UTF-8"),
    ],
)
def test_values_before_a_fault_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, values: int, message: str, chunk: int
) -> None:
    monkeypatch.setattr(stream, "CHUNK_BYTES", chunk)
    path = tmp_path / "list.json"
    path.write_bytes(text)
    found: list[Any] = []
    if not message:
        found += read_values(path)
    else:
        with pytest.raises(ImportFailed, match=message):
            found.extend(read_values(path))
    assert len(found) == values


def test_a_value_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_BYTES", 1000)
    path = file(tmp_path, ["x" * 70_000])
    with pytest.raises(ImportFailed, match="line 1: a conversation of more than"):
        list(read_values(path))


def test_records_are_lines_or_elements(tmp_path: Path) -> None:
    assert list(read_records(file(tmp_path, '{"a": 1}\n{"a": 2}'), SkipLog())) == [{"a": 1}, {"a": 2}]
    assert list(read_records(file(tmp_path, '[{"a": 1},\n{"a": 2}]'), SkipLog())) == [{"a": 1}, {"a": 2}]
