from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from hermes_core import Session, ToolCall
from hermes_core.errors import BackendUnavailable, ProviderInvalid, ToolInputInvalid
from hermes_core.kit import Range, ToolBox, tool


class Shelf:
    @tool()
    def find(
        self,
        query: Annotated[str, "words to look for"],
        kind: Literal["book", "film"] = "book",
        limit: Annotated[int, Range(1, 50), "how many"] = 10,
        tags: Annotated[list[str] | None, "any of these"] = None,
        weight: float = 0.5,
        strict: bool = False,
        session: Session | None = None,
    ) -> dict[str, Any]:
        """Find things
        on the shelf."""
        asked_by = session.id if session else ""
        return {"query": query, "kind": kind, "limit": limit, "tags": tags, "strict": strict, "by": asked_by}

    @tool("shelf_close", description="Close it.")
    def close(self) -> str:
        return "closed"

    @tool()
    def down(self) -> str:
        raise BackendUnavailable("the shelf is away")

    @tool()
    def choosy(self, word: str) -> str:
        raise ToolInputInvalid(f"{word!r} is no word", "send another")


def call(name: str = "find", **arguments: Any) -> Any:
    shelf = Shelf()
    box = ToolBox(shelf.find, shelf.close, shelf.down, shelf.choosy)
    return json.loads(box.dispatch(ToolCall(name, arguments), Session("s1")))


def test_the_schema_says_types_choices_bounds_and_what_is_required() -> None:
    schema, other = ToolBox(Shelf().find, Shelf().close).schemas
    assert (schema["name"], schema["description"]) == ("find", "Find things on the shelf.")
    assert schema["parameters"]["required"] == ["query"]
    assert schema["parameters"]["properties"] == {
        "query": {"type": "string", "description": "words to look for"},
        "kind": {"type": "string", "enum": ["book", "film"]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "how many"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "any of these"},
        "weight": {"type": "number"},
        "strict": {"type": "boolean"},
    }
    assert (other["name"], other["description"]) == ("shelf_close", "Close it.")


def test_a_call_reaches_the_function_with_its_session_and_answers_json() -> None:
    assert call(query="tea", tags=["a"], limit="20") == {
        "query": "tea",
        "kind": "book",
        "limit": 20,
        "tags": ["a"],
        "strict": False,
        "by": "s1",
    }
    assert call("shelf_close") == {"result": "closed"}


def test_numbers_out_of_range_are_moved_to_the_bound() -> None:
    assert call(query="x", limit=9999)["limit"] == 50
    assert call(query="x", limit=-3)["limit"] == 1


def test_a_range_of_msgspec_is_kept_and_a_range_of_ours_moves_a_number() -> None:
    @tool()
    def pour(cups: Annotated[int, Meta(ge=1, le=9)], warmth: Annotated[int, Range(1, 9)] = 5) -> Any:
        return [cups, warmth]

    box = ToolBox(pour)
    answers = [json.loads(box.dispatch(ToolCall("pour", {"cups": cups, "warmth": 80}))) for cups in (3, 80)]
    assert answers == [[3, 9], {"error": "cups must be a whole number from 1 up to 9, is 80"}]


def test_an_object_is_an_argument_too() -> None:
    @tool()
    def label(tags: Annotated[dict[str, Any], "names and values"]) -> Any:
        return tags

    assert ToolBox(label).schemas[0]["parameters"]["properties"] == {
        "tags": {"type": "object", "description": "names and values"}
    }
    assert json.loads(ToolBox(label).dispatch(ToolCall("label", {"tags": {"a": 1}}))) == {"a": 1}


def test_null_means_left_out() -> None:
    assert call(query="x", kind=None, limit=None)["kind"] == "book"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "query is missing; send a string"),
        ({"query": None}, "query is missing; send a string"),
        ({"query": ["x"]}, "query must be a string, is ['x']"),
        ({"query": "x", "limit": "many"}, "limit must be a whole number from 1 up to 50, is 'many'"),
        ({"query": "x", "limit": [1]}, "limit must be a whole number from 1 up to 50, is [1]"),
        ({"query": "x", "limit": "010"}, "limit must be a whole number from 1 up to 50, is '010'"),
        ({"query": "x", "weight": 10**400}, "weight must be a number, is 1000000"),
        ({"query": "x", "weight": 10**5000}, "weight must be a number, is a value that is too large"),
        ({"query": "x", "weight": float("nan")}, "weight must be a number, is nan"),
        ({"query": {"text": "x"}}, "query must be a string, is {'text': 'x'}"),
        ({"query": 5}, "query must be a string, is 5"),
        ({"query": " \x00 "}, "query is empty; send words to look for"),
        ({"query": "x", "limit": True}, "limit must be a whole number from 1 up to 50, is True"),
        ({"query": "x", "limit": 1.5}, "limit must be a whole number from 1 up to 50, is 1.5"),
        ({"query": "x", "weight": "nan"}, "weight must be a number, is 'nan'"),
        ({"query": "x", "kind": "song"}, "kind must be one of 'book', 'film', is 'song'"),
        ({"query": "x", "kind": ["book"]}, "kind must be one of 'book', 'film', is ['book']"),
        ({"query": "x", "tags": "a"}, "tags must be a list, each item a string, is 'a'"),
        ({"query": "x", "tags": [1]}, "tags must be a list, each item a string, is [1]"),
        ({"query": "x", "strict": "perhaps"}, "strict must be true or false, is 'perhaps'"),
        ({"query": "x", "session": "s2"}, "find takes no 'session'; send only query, kind, limit"),
        ({"query": "x", "limt": 3}, "find takes no 'limt'; did you mean 'limit'?"),
    ],
)
def test_a_wrong_argument_is_answered_with_the_right_form(arguments: dict[str, Any], said: str) -> None:
    assert call(**arguments)["error"].startswith(said)


def test_a_tool_refuses_its_input_by_an_error_of_ours() -> None:
    assert call("choosy", word="x") == {"error": "'x' is no word; send another"}


def test_an_unknown_tool_is_answered_with_the_names() -> None:
    assert call("burn")["error"] == "there is no tool 'burn'; call one of find, shelf_close, down, choosy"


def test_arguments_that_are_no_object_are_answered() -> None:
    box = ToolBox(Shelf().close)
    answer = json.loads(box.dispatch(ToolCall("shelf_close", ["x"])))  # type: ignore[arg-type]
    assert answer == {"error": "arguments must be a JSON object, is ['x']"}


def test_arguments_that_a_model_sent_as_json_text_are_read() -> None:
    answer = ToolBox(Shelf().find).dispatch(ToolCall("find", '{"query": "tea", "limit": 3}'))  # type: ignore[arg-type]
    assert (json.loads(answer)["query"], json.loads(answer)["limit"]) == ("tea", 3)


def test_an_error_of_the_backend_passes_to_the_manager() -> None:
    with pytest.raises(BackendUnavailable):
        call("down")


def test_a_result_that_would_flood_the_model_is_refused() -> None:
    @tool()
    def much() -> str:
        return "x" * 200

    assert "ask for less" in ToolBox(much, max_result=100).dispatch(ToolCall("much", {}))


def test_an_annotation_without_a_schema_is_refused_at_declaration() -> None:
    with pytest.raises(ProviderInvalid, match="'when' as"):

        @tool()
        def wrong(when: dict[str, str]) -> str:
            return ""


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ProviderInvalid, match="two tools share the name 'shelf_close'"):
        ToolBox(Shelf().close, Shelf().close)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(
    st.dictionaries(st.sampled_from(["query", "kind", "limit", "tags", "weight", "strict", "x"]), json_values)
)
def test_whatever_a_model_sends_the_answer_is_json_and_never_an_exception(arguments: dict[str, Any]) -> None:
    assert isinstance(call(**arguments), dict)


class Distant:
    @tool()
    async def ask(self, query: str) -> str:
        """Ask far away."""
        await asyncio.sleep(0)
        if query == "nonsense":
            raise ToolInputInvalid("that is nonsense", "ask something else")
        return query.upper()


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"query": "tea"}, {"result": "TEA"}),
        ({}, {"error": "query is missing; send a string"}),
        ({"query": "nonsense"}, {"error": "that is nonsense; ask something else"}),
    ],
)
def test_a_tool_may_be_a_coroutine(arguments: dict[str, Any], answer: dict[str, str]) -> None:
    box = ToolBox(Distant().ask)
    assert json.loads(asyncio.run(box.dispatch_async(ToolCall("ask", arguments)))) == answer


def test_tools_of_both_kinds_stand_side_by_side() -> None:
    class Both(Distant):
        @tool()
        def near(self, query: str) -> str:
            """Ask close by."""
            return query

    box = ToolBox(Both().ask, Both().near)
    answers = [asyncio.run(box.dispatch_async(ToolCall(name, {"query": "tea"}))) for name in box.names]
    assert [json.loads(answer)["result"] for answer in answers] == ["TEA", "tea"]


def test_a_mark_without_parentheses_is_refused() -> None:
    with pytest.raises(ProviderInvalid, match="lacks its parentheses"):
        tool(lambda self: None)  # type: ignore[arg-type]
