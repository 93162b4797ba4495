from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_core.contract.values import Session
from hermes_core.errors import DatabaseUnavailable
from hermes_core.recall.tokens import count_tokens
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.tool import (
    MAX_ANSWER_CHARS,
    MAX_MESSAGE_CHARS,
    SESSION_SEARCH_SCHEMA,
    SessionSearchTool,
)
from tests.rounds import rounds

ME = Session("now")


@pytest.fixture
def past(db: SessionStore) -> SessionStore:
    """Two past conversations of thirty messages, and the current one."""
    db.delete_session("s1")
    for day, topic in ((1, "walnut"), (2, "maple")):
        db.create_session(topic, title=f"About {topic}", started_at=day * 86_400.0)
        for number in range(30):
            role = "user" if number % 2 == 0 else "assistant"
            text = f"the {topic} table wants oil" if number == 14 else f"{topic} chat {number}"
            db.append_message(topic, role, text, timestamp=day * 86_400.0 + number)
    db.create_session("now")
    db.append_message("now", "user", "what about the walnut table?")
    return db


def call(db: SessionStore, session: Session = ME, **arguments: Any) -> dict[str, Any]:
    answer = json.loads(SessionSearchTool(db).call(arguments, session))
    assert isinstance(answer, dict)
    return answer


def test_without_arguments_it_lists_past_conversations(past: SessionStore) -> None:
    answer = call(past)

    assert (answer["success"], answer["mode"]) == (True, "browse")
    assert [r["session_id"] for r in answer["results"]] == ["maple", "walnut"]
    assert answer["results"][0]["preview"] == "maple chat 0"
    assert answer["results"][0]["message_count"] == 30


def test_a_query_finds_one_hit_a_conversation_with_what_stands_around_it(past: SessionStore) -> None:
    answer = call(past, query="the walnut table?")

    first = answer["results"][0]
    assert (answer["mode"], first["session_id"], first["title"]) == ("discover", "walnut", "About walnut")
    assert "table" in first["snippet"]
    assert [m["content"] for m in first["messages"] if m.get("anchor")] == ["the walnut table wants oil"]
    assert len(first["messages"]) == 11
    assert [m["content"] for m in first["bookend_start"]] == [
        "walnut chat 0",
        "walnut chat 1",
        "walnut chat 2",
    ]
    assert [m["content"] for m in first["bookend_end"]][-1] == "walnut chat 29"
    assert (first["messages_before"], first["messages_after"]) == (9, 10)
    assert len({r["session_id"] for r in answer["results"]}) == len(answer["results"])


def test_a_query_that_finds_nothing_says_so(past: SessionStore) -> None:
    answer = call(past, query="zyzzyva?")

    assert (answer["results"], answer["count"], answer["message"]) == ([], 0, "No matching sessions found.")


def test_a_title_comes_first(past: SessionStore) -> None:
    answer = call(past, query='"About maple"', limit=1)

    assert answer["results"][0]["session_id"] == "maple"
    assert answer["results"][0]["matched_role"] == "session_title"


def test_a_query_that_happens_to_be_an_id_is_no_title(past: SessionStore) -> None:
    assert call(past, query="walnut")["results"][0]["matched_role"] != "session_title"


def test_the_current_lineage_and_tool_sessions_are_left_out(past: SessionStore) -> None:
    past.create_session("child", parent_id="now", relation="delegation")
    past.append_message("child", "user", "walnut in the child")
    past.create_session("hidden", "tool")
    past.append_message("hidden", "user", "walnut in a tool session")

    assert [r["session_id"] for r in call(past, query="walnut", limit=10)["results"]] == ["walnut"]
    assert {r["session_id"] for r in call(past)["results"]} == {"walnut", "maple"}


def test_what_a_compression_took_out_of_the_context_is_found(past: SessionStore) -> None:
    fact = past.append_message("now", "user", "the walnut table cost 40 crowns")
    past.end_session("now", "compression")
    past.create_session("later", parent_id="now", relation="compression")
    past.append_message("later", "user", "a summary without crowns")
    past.create_session("branch", parent_id="later", relation="branch")

    for session in (Session("later"), Session("branch")):
        (found,) = call(past, session, query="crowns")["results"]
        assert (found["session_id"], found["match_message_id"]) == ("now", fact)
        assert call(past, session, session_id="now", around_message_id=fact)["success"]
        assert call(past, session, session_id="now")["success"]
        assert not call(past, session, session_id="later")["success"]


def test_a_session_of_which_the_model_sees_a_part_is_searched_too(past: SessionStore) -> None:
    past.meta.set("left_out:now", "1")

    assert "now" in {one["session_id"] for one in call(past, query="walnut table")["results"]}
    past.delete_session("now")
    assert past.meta.get("left_out:now") is None


def test_scrolling_shows_the_messages_around_one(past: SessionStore) -> None:
    anchor = past.get_messages("walnut")[10].id

    answer = call(past, session_id="walnut", around_message_id=anchor, window=2, query="ignored")

    assert answer["mode"] == "scroll"
    assert [m["id"] for m in answer["messages"]] == list(range(anchor - 2, anchor + 3))
    assert (answer["messages_before"], answer["messages_after"]) == (8, 17)


@pytest.mark.parametrize(
    ("given", "used"), [(0, 1), (-5, 1), (99, 20), ("7", 7), ("many", 5), (None, 5), (True, 5)]
)
def test_the_window_is_kept_between_one_and_twenty(past: SessionStore, given: object, used: int) -> None:
    anchor = past.get_messages("walnut")[10].id

    assert call(past, session_id="walnut", around_message_id=anchor, window=given)["window"] == used


def test_scrolling_finds_a_message_that_lies_in_a_child_session(past: SessionStore) -> None:
    past.end_session("walnut", "compression")
    past.create_session("walnut2", parent_id="walnut", relation="compression")
    anchor = past.append_message("walnut2", "user", "later")

    answer = call(past, session_id="walnut", around_message_id=anchor)

    assert answer["session_id"] == "walnut2"
    assert "rebound" in answer["warning"]


def test_scrolling_in_the_current_conversation_is_refused(past: SessionStore) -> None:
    anchor = past.get_messages("now")[0].id

    answer = call(past, session_id="now", around_message_id=anchor)

    assert answer["success"] is False
    assert "current session lineage" in answer["error"]
    assert call(past, session_id="now")["success"] is False


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"around_message_id": 3}, "scroll requires session_id"),
        ({"session_id": "walnut", "around_message_id": "x"}, "scroll requires integer around_message_id"),
        (
            {"session_id": "walnut", "around_message_id": 10**9},
            "around_message_id 1000000000 not in session_id walnut",
        ),
        ({"session_id": "nowhere"}, "session_id not found: nowhere"),
    ],
)
def test_a_call_that_cannot_be_answered_says_why(
    past: SessionStore, arguments: dict[str, Any], error: str
) -> None:
    answer = call(past, **arguments)

    assert answer["success"] is False
    assert answer["error"] == error


def test_reading_a_long_session_leaves_its_middle_out(past: SessionStore) -> None:
    for number in range(30, 50):
        past.append_message("walnut", "user", f"walnut chat {number}")

    answer = call(past, session_id="walnut")

    assert (answer["mode"], answer["message_count"], answer["truncated"]) == ("read", 50, True)
    assert [m["content"] for m in answer["messages"]][19:21] == ["walnut chat 19", "walnut chat 40"]
    assert call(past, session_id="maple")["truncated"] is False


def test_long_content_is_cut_with_its_length(past: SessionStore) -> None:
    past.append_message("maple", "assistant", "syrup \x1b[31m" + "x" * 9_000, tool_calls=[{"a": "y" * 9_000}])

    (message,) = [m for m in call(past, session_id="maple")["messages"] if m["content"].startswith("syrup")]

    assert message["content"].startswith("syrup xxx")
    assert len(message["content"]) == 4_000
    assert message["original_content_chars"] == 9_006
    assert len(message["tool_calls"]) <= 4_000


def test_of_a_long_message_a_search_shows_the_part_that_answers(past: SessionStore) -> None:
    page = (
        "filler \x1b[31m" * 2_000 + "The walnut wood came from Ostrava in a green van. " + "filler " * 2_000
    )
    past.append_message("walnut", "assistant", page)

    answer = call(past, query="Where did the walnut wood in the green van come from?")

    (message,) = [m for r in answer["results"] for m in r["messages"] if m.get("anchor")]
    text = page.replace("\x1b[31m", "")
    start = message["content_start"]
    assert "from Ostrava in a green van" in message["content"]
    assert message["content"] == text[start : start + MAX_MESSAGE_CHARS]
    assert (message["content_truncated"], message["original_content_chars"]) == (True, len(text))


def test_of_a_long_message_that_answers_at_its_start_a_search_shows_the_start(past: SessionStore) -> None:
    past.append_message(
        "walnut", "assistant", "The wood of the green van came from Ostrava. " + "fill " * 2_000
    )

    answer = call(past, query="Where did the wood in the green van come from?")

    (message,) = [m for r in answer["results"] for m in r["messages"] if m.get("anchor")]
    assert message["content"].startswith("The wood of the green van")
    assert "content_start" not in message


def test_rewound_messages_are_in_no_answer(past: SessionStore) -> None:
    messages = past.get_messages("walnut")
    past.rewind("walnut", messages[14].id)

    assert "walnut table wants" not in json.dumps(call(past, query="walnut table oil", limit=10))
    assert "wants oil" not in json.dumps(call(past, session_id="walnut"))
    assert call(past, session_id="walnut", around_message_id=messages[14].id)["success"] is False
    assert "wants oil" not in json.dumps(call(past, session_id="walnut", around_message_id=messages[13].id))


def test_users_of_a_platform_see_their_own_sessions_only(past: SessionStore) -> None:
    mine, yours = (
        Session("m", platform="telegram", user_id="1"),
        Session("y", platform="telegram", user_id="2"),
    )
    past.create_session("mine", "telegram", user=mine.owner)
    anchor = past.append_message("mine", "user", "walnut secret")

    assert [r["session_id"] for r in call(past, mine, query="walnut")["results"]] == ["mine"]
    assert call(past, yours, query="walnut")["results"] == call(past, yours)["results"] == []
    assert call(past, yours, session_id="mine")["success"] is False
    assert call(past, yours, session_id="mine", around_message_id=anchor)["success"] is False


def test_a_title_leads_to_ones_own_session_also_when_another_user_has_it_too(past: SessionStore) -> None:
    mine = Session("m", platform="telegram", user_id="1")
    for name, user in (("mine", mine.owner), ("yours", "telegram:2")):
        past.create_session(name, "telegram", user=user, title="The boat")
        past.append_message(name, "user", f"said in {name}")

    found = call(past, mine, query="The boat")["results"]
    assert [(r["session_id"], r["matched_role"]) for r in found] == [("mine", "session_title")]


def test_a_chat_that_names_no_user_sees_its_own_sessions_only(past: SessionStore) -> None:
    group, other = (Session(f"in-{chat}", platform="telegram", chat_id=chat) for chat in ("7", "8"))
    namesake = Session("y", platform="telegram", user_id="7")
    past.create_session("ours", "telegram", user=group.owner)
    past.append_message("ours", "user", "walnut secret")

    assert [r["session_id"] for r in call(past, group, query="walnut")["results"]] == ["ours"]
    assert [r["session_id"] for r in call(past, group)["results"]] == ["ours"]
    assert call(past, group, session_id="walnut")["success"] is False
    for somebody in (other, namesake):
        assert call(past, somebody, query="walnut")["results"] == call(past, somebody)["results"] == []


def test_roles_limit_and_sort_are_obeyed(past: SessionStore) -> None:
    past.append_message("maple", "tool", "table saw", tool_name="shop")

    assert (
        call(past, query="saw")["count"] == 0
        or call(past, query="saw")["results"][0]["matched_role"] != "tool"
    )
    assert call(past, query="saw", role_filter="tool")["results"][0]["matched_role"] == "tool"
    assert call(past, query="table", limit=1)["count"] == 1
    assert call(past, query="chat", sort="oldest")["results"][0]["session_id"] == "walnut"
    assert call(past, query="chat", sort="newest")["results"][0]["session_id"] == "maple"


def test_without_a_store_the_answer_is_a_clear_error() -> None:
    def broken() -> SessionStore:
        raise DatabaseUnavailable("can't use 'state.db': disk I/O error", "check the disk")

    for tool in (SessionSearchTool(None), SessionSearchTool(broken)):
        answer = json.loads(tool.call({"query": "x"}, ME))

        assert answer["success"] is False
        assert answer["error"].startswith("session database not available")
        assert answer["remedy"]


def test_a_damaged_store_answers_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"no database at all " * 100)
    db = SessionStore(tmp_path / "state.db")

    assert "damaged" in call(db, query="x")["error"]
    db.close()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
NAMES = st.sampled_from(sorted(SESSION_SEARCH_SCHEMA["parameters"]["properties"]))


def test_what_a_model_sends_as_a_number_is_looked_for_as_it_stands(past: SessionStore) -> None:
    past.create_session("4711")
    past.append_message("4711", "user", "the parcel is 90210")

    assert [r["session_id"] for r in call(past, query=90210)["results"]] == ["4711"]
    assert call(past, session_id=4711)["messages"][0]["content"] == "the parcel is 90210"
    assert call(past, query="walnut", since=19700102)["count"] == 1
    assert "is not a date" in call(past, query="walnut", since=5)["error"]


@settings(
    max_examples=rounds(200),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(arguments=ANYTHING | st.dictionaries(NAMES, ANYTHING | st.sampled_from(["walnut", 3, "maple"])))
def test_arguments_of_any_type_never_raise(past: SessionStore, arguments: object) -> None:
    answer = json.loads(SessionSearchTool(past).call(arguments, ME))

    assert isinstance(answer["success"], bool)


def test_ten_hits_as_an_index_cost_little_and_say_where_to_read_on(db: SessionStore) -> None:
    for number in range(12):
        db.create_session(f"session-{number:032d}", title=f"Kumquats part {number} of a long series of talks")
        db.append_message(
            f"session-{number:032d}", "user", f"Tree {number}. " + "The kumquat trees need water. " * 200
        )

    text = SessionSearchTool(db).call({"query": "kumquat", "limit": 50, "detail": "index"}, ME)

    answer = json.loads(text)
    assert answer["count"] == 10
    assert count_tokens(text) < 2_000
    first = answer["results"][0]
    assert "messages" not in first
    read = call(db, session_id=first["session_id"], around_message_id=first["match_message_id"])
    assert read["success"]


def test_detail_decides_how_much_of_a_hit_is_shown(past: SessionStore) -> None:
    (full,), (snippet,), (index,) = (
        call(past, query="walnut table", limit=1, detail=d)["results"] for d in ("full", "snippet", "index")
    )
    assert set(index) < set(snippet) < set(full)
    assert "table" in snippet["snippet"]
    assert "messages" not in snippet
    assert call(past, query="walnut table", limit=1, detail=7)["results"] == [full]


def test_a_full_answer_keeps_to_its_size_and_shows_the_match_whole(db: SessionStore) -> None:
    for session in "abcdef":
        db.create_session(session)
        for number in range(15):
            text = "the kumquat" if number == 7 else f"word {number}"
            db.append_message(session, "user", text + " and more of it" * 400)

    text = SessionSearchTool(db).call({"query": "kumquat", "limit": 5}, ME)

    assert len(text) < 1.3 * MAX_ANSWER_CHARS
    for result in json.loads(text)["results"]:
        (anchor,) = (m for m in result["messages"] if m.get("anchor"))
        assert len(anchor["content"]) == MAX_MESSAGE_CHARS


def test_time_and_source_narrow_a_search(past: SessionStore) -> None:
    past.create_session("telegram-1", "telegram")
    past.append_message("telegram-1", "user", "maple syrup", timestamp=5 * 86_400.0)

    def found(**filters: str) -> list[str]:
        return [r["session_id"] for r in call(past, query="maple", limit=5, **filters)["results"]]

    assert sorted(found()) == ["maple", "telegram-1"]
    assert found(source="telegram") == ["telegram-1"]
    assert found(since="1970-01-04T00:00+00:00") == ["telegram-1"]
    assert found(until="1970-01-04T00:00+00:00") == ["maple"]
    assert found(after="1970-01-04T00:00+00:00") == ["telegram-1"]
    assert found(before="1970-01-04") == ["maple"]
    assert found(after="January 1970", before="1970-01-04") == ["maple"]
    assert found(after="last week") == []
    assert call(past, query="maple", after="soon")["success"] is False


def test_words_for_a_time_count_from_the_clock_of_the_session(past: SessionStore) -> None:
    past.create_session("later")
    past.append_message("later", "user", "maple syrup", timestamp=40 * 86_400.0)
    tool = SessionSearchTool(past)

    def found(now: float | None, **filters: str) -> list[str]:
        answer = json.loads(tool.call({"query": "maple", "limit": 5, **filters}, ME, now))
        return [result["session_id"] for result in answer["results"]]

    assert found(42 * 86_400.0, after="3 days ago") == ["later"]
    assert found(None, after="3 days ago") == []


def test_a_result_tells_the_time_of_its_message(past: SessionStore) -> None:
    past.create_session("long", started_at=86_400.0)
    past.append_message("long", "user", "something else", timestamp=86_400.0)
    past.append_message("long", "user", "maple syrup", timestamp=50 * 86_400.0)

    results = call(past, query="maple syrup", limit=5)["results"]
    (result,) = (result for result in results if result["session_id"] == "long")

    assert result["when"].startswith("February 20, 1970")
    assert result["started_at"].startswith("January 02, 1970")


def test_the_first_time_is_the_oldest_of_the_good_answers(past: SessionStore) -> None:
    for day in (30, 10, 20):
        past.create_session(f"ride-{day}")
        past.append_message(f"ride-{day}", "user", "I rode a horse at the farm", timestamp=day * 86_400.0)

    def found(query: str) -> str:
        return str(past.past.search(query)[0].session_id)

    assert found("when did I first ride a horse?") == "ride-10"
    assert found("when did I ride a horse?") == "ride-30"


def test_an_answer_is_text_that_can_be_sent_whatever_was_asked(past: SessionStore) -> None:
    for arguments in ({"query": "\ud83d table"}, {"session_id": "\ud83d"}):
        SessionSearchTool(past).call(arguments, ME).encode()


def test_what_a_compression_carried_along_can_be_scrolled_around(past: SessionStore) -> None:
    past.create_session("shorter", parent_id="walnut", relation="compression")
    copied = past.append_message("shorter", "user", "walnut chat 28", copied=True)
    past.append_message("shorter", "assistant", "after it")

    shown = call(past, session_id="shorter", around_message_id=copied)["messages"]
    assert [m["content"] for m in shown] == ["walnut chat 28", "after it"]
