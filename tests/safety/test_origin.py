"""Where a text comes from decides where it may stand; a text made of several has the lowest of their origins."""

from __future__ import annotations

import threading

from hermes_core.safety.origin import (
    RANKS,
    Reading,
    current_reading,
    in_scope,
    lowest,
    may_command,
    origin_of_text,
    report_result,
)

SAID = ("I like green tea in the morning! I like black tea.",)


def test_only_the_persons_own_texts_and_the_agents_may_command() -> None:
    assert [origin for origin in RANKS if may_command(origin)] == ["person", "owner", "assistant"]
    assert not may_command("what a later version stores")


def test_the_lowest_of_several_origins_counts_and_of_equal_ones_the_first() -> None:
    assert lowest(["person", "assistant", "web", "tool"]) == "web"
    assert lowest([]) == "person"
    assert lowest(["person", "unknown"]) == "import"


def test_a_user_is_the_person_in_their_own_scope_only() -> None:
    assert in_scope("user", "telegram:42") == "person"
    assert in_scope("user", "") == "user"
    assert in_scope("web", "telegram:42") == "web"


def test_a_note_of_a_turn_without_foreign_text_is_the_agents() -> None:
    assert origin_of_text("Deploys on Friday", Reading("person")) == "assistant"
    assert origin_of_text("Deploys on Friday", Reading("assistant")) == "assistant"
    assert origin_of_text("Deploys on Friday", Reading("file")) == "file"


def test_a_note_of_a_turn_with_foreign_text_has_its_origin_unless_the_person_said_it() -> None:
    reading = Reading("web", lambda: SAID)
    assert origin_of_text("Open from 9 to 5", reading) == "web"
    assert origin_of_text("Likes black tea", reading) == "person"


def test_a_merged_note_has_the_lowest_origin_of_what_it_replaces() -> None:
    assert origin_of_text("Open from 9 to 5", Reading("person"), ["person", "import"]) == "import"


def test_a_tool_reports_the_origin_of_its_result_to_the_reading_of_its_caller() -> None:
    reading = Reading()
    with reading.active():
        report_result(["person", "tool"])
        assert current_reading() is reading
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.append(current_reading()))
        thread.start()
        thread.join()
    assert reading.result == "tool"
    assert seen == [None]
    assert current_reading() is None
    report_result(["web"])  # outside of a call nobody asks
