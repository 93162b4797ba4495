from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_core.contract.values import Session
from hermes_core.errors import SessionError
from hermes_core.sessions import lineage
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.tool import SessionSearchTool


def chain(db: SessionStore, *ids: str) -> None:
    """A session compressed into the next, and so on."""
    for number, session_id in enumerate(ids):
        parent = ids[number - 1] if number else ""
        if parent:
            db.end_session(parent, "compression", at=number * 100.0)
        db.create_session(session_id, parent_id=parent, started_at=number * 100.0)
        db.append_message(session_id, "user", f"hello from {session_id}", timestamp=number * 100.0 + 1)


def begin(db: SessionStore, session_id: str, source: str = "cli", **given: Any) -> None:
    """A session in which somebody said something."""
    db.create_session(session_id, source, **given)
    db.append_message(session_id, "user", "Hello.", timestamp=given.get("started_at"))


def shown(db: SessionStore, **filters: object) -> list[str]:
    return [entry.session.id for entry in db.list_sessions(everybody=True, **filters)]  # type: ignore[arg-type]


def test_a_compression_chain_is_one_entry_and_shows_its_tip(db: SessionStore) -> None:
    db.delete_session("s1")
    chain(db, "a", "b", "c")

    (entry,) = db.list_sessions()

    assert (entry.session.id, entry.root_id, entry.preview) == ("c", "a", "hello from a")
    assert db.compression_tip("a") == db.compression_tip("b") == "c"


def test_a_chat_that_was_compressed_for_years_goes_on_at_its_end(db: SessionStore) -> None:
    names = [f"part-{number}" for number in range(300)]
    chain(db, *names)

    assert db.compression_tip(names[0]) == names[-1]
    assert lineage.root(db.database, names[-1]) == names[0]
    assert lineage.in_context(db.database, names[-1]) == {names[-1]}


def test_a_session_delegated_by_a_living_parent_is_no_continuation(db: SessionStore) -> None:
    begin(db, "parent", started_at=0.0)
    begin(db, "helper", "subagent", parent_id="parent", started_at=50.0)
    db.end_session("parent", "compression", at=100.0)
    begin(db, "next", parent_id="parent", started_at=100.0)

    assert db.compression_tip("parent") == "next"
    assert shown(db) == ["next"]


def test_a_branch_is_an_entry_of_its_own(db: SessionStore) -> None:
    begin(db, "stem")
    begin(db, "branch", parent_id="stem", relation="branch")

    assert set(shown(db)) == {"stem", "branch"}


def test_a_session_in_which_nothing_is_said_is_not_listed(db: SessionStore) -> None:
    assert shown(db) == []
    message_id = db.append_message("s1", "user", "Hello.")
    assert shown(db) == ["s1"]
    db.rewind("s1", message_id)
    assert shown(db) == []
    begin(db, "long")
    db.end_session("long", "compression")
    db.create_session("short", parent_id="long", relation="compression")
    assert shown(db) == ["short"], "what was compressed away may be all of it"


def test_only_a_session_that_holds_nothing_is_unused(db: SessionStore) -> None:
    begin(db, "said")
    db.rewind("said", db.last_message_id("said") or 0)
    db.create_session("named", title="Trip")
    db.create_session("stem")
    db.create_session("branch", parent_id="stem", relation="branch")

    assert [db.delete_if_unused(one) for one in ("said", "named", "stem", "nowhere")] == [False] * 4
    assert [db.delete_if_unused(one) for one in ("branch", "stem", "s1")] == [True] * 3
    assert db.get_session("s1") is None


def test_a_circle_of_parents_ends(db: SessionStore) -> None:
    db.create_session("x", parent_id="y", relation="compression")
    db.create_session("y", parent_id="x", relation="compression")

    assert db.compression_tip("x") in {"x", "y"}
    assert lineage.root(db.database, "x") in {"x", "y"}
    assert db.lineage("x") == {"x", "y"}


def test_the_family_is_everyone_under_one_root(db: SessionStore) -> None:
    chain(db, "a", "b", "c")
    db.create_session("side", parent_id="a", relation="branch")

    assert db.lineage("b") == {"a", "b", "c", "side"}
    assert db.lineage("s1") == {"s1"}
    assert db.lineage("unknown") == {"unknown"}


def test_the_conversation_with_its_ancestors_reads_from_the_beginning(db: SessionStore) -> None:
    chain(db, "a", "b")

    told = db.get_messages_as_conversation("b", include_ancestors=True)

    assert [m["content"] for m in told] == ["hello from a", "hello from b"]


def test_deleting_takes_delegated_sessions_along_and_leaves_the_continuation(db: SessionStore) -> None:
    db.create_session("helper", "subagent", parent_id="s1", relation="delegation")
    db.end_session("s1", "compression", at=1.0)
    db.create_session("next", parent_id="s1", relation="compression")

    db.delete_session("s1")

    assert db.get_session("helper") is None
    following = db.get_session("next")
    assert following is not None
    assert following.parent_id == ""


def test_lists_are_ordered_by_activity_and_filtered(db: SessionStore) -> None:
    begin(db, "old", "telegram", user="u1", started_at=1.0)
    begin(db, "new", user="u2", started_at=2.0)
    db.append_message("old", "user", "again", timestamp=3.0)

    assert shown(db, exclude_sessions=["s1"]) == ["old", "new"]
    assert shown(db, source="telegram") == ["old"]
    assert shown(db, user="u2") == ["new"]
    assert shown(db, exclude_sources=["cli"]) == ["old"]
    assert shown(db, exclude_sessions=["s1"], limit=1, offset=1) == ["new"]


def test_a_long_first_message_is_previewed_in_one_line(db: SessionStore) -> None:
    db.append_message("s1", "user", "first\nline " + "x" * 100)

    (entry,) = db.list_sessions()

    assert entry.preview.startswith("first line xxx")
    assert len(entry.preview) == 63


def test_titles_count_up_along_the_conversation(db: SessionStore) -> None:
    db.meta.set_title("s1", "My plan")
    db.create_session("s2", title="My plan")
    db.create_session("s3", title="My plan #2")

    titles = [session.title for i in ("s1", "s2", "s3") if (session := db.get_session(i))]

    assert titles == ["My plan", "My plan #2", "My plan #3"]
    assert db.meta.next_title("My plan") == "My plan #4"
    assert db.meta.next_title("Other") == "Other"


def test_a_number_of_its_own_stays_part_of_a_title(db: SessionStore) -> None:
    for number, title in enumerate(["Fix #5", "Fix #7", "Fix #5", "Fix #5 #2", "Fix", "Fix", "#3", ""]):
        db.create_session(f"s{number}", title=title)
    titles = [s.title for s in map(db.get_session, map("s{}".format, range(8))) if s]
    assert titles == ["Fix #5", "Fix #7", "Fix #5 #2", "Fix #5 #3", "Fix #8", "Fix #9", "#3", ""]
    assert db.find_session("Fix #5") == db.get_session("s3")


def test_a_long_title_is_cut_for_its_number_and_counts_on(db: SessionStore) -> None:
    long = "x" * 98 + "yz"
    for number in range(12):
        db.create_session(f"s{number}", title=long)
    titles = [s.title for s in map(db.get_session, map("s{}".format, range(12))) if s]
    assert titles[:3] == [long, "x" * 97 + " #2", "x" * 97 + " #3"]
    assert titles[8:] == ["x" * 97 + " #9", *("x" * 96 + f" #{n}" for n in (10, 11, 12))]
    assert db.meta.next_title("x" * 95) == "x" * 95


def test_names_lead_a_user_to_sessions_of_their_own_whatever_others_have(db: SessionStore) -> None:
    for session_id, user in (("trip-1", ""), ("trip-2", "telegram:1"), ("trip-3", "telegram:2")):
        db.create_session(session_id, user=user, title="Trip")
        assert db.get_session(session_id).title == "Trip"  # type: ignore[union-attr]

    for user, own in (("", "trip-1"), ("telegram:1", "trip-2"), ("telegram:2", "trip-3")):
        for text in ("Trip", "trip-", own):
            assert db.find_session(text, user=user) == db.get_session(own)
        assert db.find_session("Trip", user=user, title_only=True) == db.get_session(own)
    assert db.find_session("trip-1", user="telegram:1") is None
    assert db.find_session("Trip", everybody=True) == db.get_session("trip-1")


def test_a_title_is_numbered_and_refused_within_the_sessions_of_one_user(db: SessionStore) -> None:
    for session_id, user in (
        ("home", ""),
        ("ann", "telegram:1"),
        ("bob", "telegram:2"),
        ("bob-2", "telegram:2"),
    ):
        db.create_session(session_id, user=user)
        assert db.meta.set_title(session_id, db.meta.next_title("Trip", user=user)) == (
            "Trip #2" if session_id == "bob-2" else "Trip"
        )
    with pytest.raises(SessionError, match="in use by session 'bob'"):
        db.meta.set_title("bob-2", "Trip")


def test_a_session_that_is_given_to_a_user_takes_a_title_that_is_free_there(db: SessionStore) -> None:
    db.create_session("ann", user="telegram:1", title="Trip")
    db.create_session("new", title="Trip")
    db.create_session("new", user="telegram:1")
    assert db.get_session("new").title == "Trip #2"  # type: ignore[union-attr]


def test_long_titles_that_are_cut_for_their_number_stay_different(db: SessionStore) -> None:
    for number in range(12):
        begin(db, f"s{number}", title="x" * 100 if number % 2 else "x" * 98 + "yz")
    titles = {entry.session.title for entry in db.list_sessions()}
    assert len(titles) == 12
    assert max(map(len, titles)) == 100


def test_a_title_in_use_is_refused_and_an_ancestor_gives_it_up(db: SessionStore) -> None:
    chain(db, "a", "b")
    db.meta.set_title("a", "Plan")

    with pytest.raises(SessionError, match="'Plan' is in use by session 'a'"):
        db.meta.set_title("s1", "Plan")
    assert db.meta.set_title("b", "Plan") == "Plan"


def test_a_title_is_one_clean_line(db: SessionStore) -> None:
    assert db.meta.set_title("s1", "  two\nlines\u202e \x07bell " + "x" * 200).startswith(
        "two lines bell xxx"
    )
    assert db.meta.set_title("s1", "") == ""


def test_a_session_is_found_by_id_prefix_or_title(db: SessionStore) -> None:
    db.create_session("20240313_abc", title="Trip")
    db.create_session("other", title="Trip #2")

    def found(text: str) -> str | None:
        session = db.find_session(text)
        return session.id if session else None

    assert found("20240313_abc") == found("20240313") == "20240313_abc"
    assert found("Trip") == "other"
    assert found("%") is None
    assert found("") is None


def test_a_copy_that_a_compression_made_stands_once_in_the_whole_conversation(db: SessionStore) -> None:
    db.append_message("s1", "user", "a")
    db.append_message("s1", "user", "b")
    db.create_session("s2", parent_id="s1", relation="compression")
    db.append_message("s2", "user", "b", copied=True)
    db.append_message("s2", "user", "c")

    def said(ancestors: bool) -> list[str]:
        return [m["content"] for m in db.get_messages_as_conversation("s2", include_ancestors=ancestors)]

    assert said(True) == ["a", "b", "c"]
    assert said(False) == ["b", "c"]
    # The stored value of a copy is 3 in homes of every version.
    states = db.database.execute(
        "SELECT state FROM messages WHERE session_key = (SELECT key FROM sessions WHERE id = 's2') ORDER BY id"
    ).fetchall()
    assert [row[0] for row in states] == [3, 0]
    assert [message.copied for message in db.get_messages("s2")] == [True, False]
    db.delete_session("s1")
    assert said(True) == ["b", "c"]


def test_a_session_that_only_came_after_another_is_a_conversation_of_its_own(db: SessionStore) -> None:
    db.create_session("later", parent_id="s1")
    db.create_session("last", parent_id="later")
    for session in ("s1", "later", "last"):
        db.append_message(session, "user", f"kumquat {session}")
    assert shown(db) == ["last", "later", "s1"]
    assert db.lineage("later") == frozenset({"later"})
    for current, other in (("later", "s1"), ("s1", "later")):
        answer = SessionSearchTool(db).call({"query": f"kumquat {other}"}, Session(current))
        assert other in {result["session_id"] for result in json.loads(answer)["results"]}
        assert json.loads(SessionSearchTool(db).call({"session_id": other}, Session(current)))["success"]
    db.delete_session("s1")
    assert shown(db) == ["last", "later"]


@pytest.mark.parametrize(
    "kind",
    [
        {"relation": "delegation"},
        {"source": "subagent"},
        {"source": "tool"},
        {"identity": {"id": "task", "agent_context": "subagent"}},
    ],
)
def test_a_delegated_session_is_deleted_with_its_parent_and_never_listed(
    db: SessionStore, kind: dict[str, Any]
) -> None:
    db.append_message("s1", "user", "kumquat")
    db.create_session("task", parent_id="s1", **kind)
    db.append_message("task", "user", "count the kumquats")
    db.create_session("orphan", parent_id="gone", **kind)
    db.append_message("orphan", "user", "count the kumquats")
    assert shown(db) == ["s1"]
    assert db.lineage("task") == frozenset({"s1", "task"})
    db.delete_session("s1")
    assert db.get_session("task") is None
    assert shown(db) == []
