"""Files that are imported once more: nothing of them is lost, and nothing comes in twice."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_core import HermesHome
from hermes_core.memory import open_memory
from hermes_core.safety.fence import build_memory_context_block
from hermes_memory_importers import stream_file
from hermes_memory_importers.run import import_sessions
from tests.rounds import rounds


def imported(home: HermesHome, path: Path, written: str) -> list[str]:
    """What is stored of the one conversation after the file was imported, and after it was imported again."""
    path.write_text(written)
    with open_memory(home) as memory:
        for _ in range(2):
            import_sessions(memory, stream_file(path))
        ((session, _),) = stream_file(path)
        return [m.content for m in memory.sessions.get_messages(session.id)]


def lines(*said: str, **more: Any) -> str:
    roles = ("user", "assistant")
    return "\n".join(
        json.dumps({"session": "s", "role": roles[i % 2], "content": text, **more})
        for i, text in enumerate(said)
    )


def test_an_answer_that_came_since_is_brought_in(hermes_home: HermesHome, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for said in (("a", "b", "c"), ("a", "b", "c", "d"), ("a", "b", "c", "d", "e", "f")):
        assert imported(hermes_home, path, lines(*said)) == list(said)


def test_recall_that_was_injected_does_not_come_in_as_what_was_said(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    path, block = tmp_path / "a.jsonl", build_memory_context_block("Ann likes quokkas")
    said = (f"Hello\n\n{block}", f"Hi {block}there", f"{block}", "Well")
    assert imported(hermes_home, path, lines(*said)) == ["Hello\n\n", "Hi there", "", "Well"]
    with open_memory(hermes_home) as memory:
        assert memory.sessions.past.search("quokkas") == []
        assert "memory-context" not in str(memory.sessions.list_sessions())


def test_what_a_tool_answered_comes_in_as_it_was(hermes_home: HermesHome, tmp_path: Path) -> None:
    code = 'TAG = "<memory-context>x</memory-context>"'
    written = (
        lines("Read it", "It says") + "\n" + json.dumps({"session": "s", "role": "tool", "content": code})
    )
    assert imported(hermes_home, tmp_path / "a.jsonl", written) == ["Read it", "It says", code]


def test_messages_that_share_a_ref_are_all_brought_in(hermes_home: HermesHome, tmp_path: Path) -> None:
    said = ["a", "b", "c", "d"]
    assert imported(hermes_home, tmp_path / "a.jsonl", lines(*said, ref="chat")) == said


LONG = "Where did we leave the tent after the trip to Portugal, {}?"


def test_an_export_that_mints_ids_comes_in_once(hermes_home: HermesHome, tmp_path: Path) -> None:
    chats = [chat("x1", [LONG, "In the garage."]), chat("x2", [LONG, "At Ann's.", "Thanks"])]
    again = [chat("y2", [LONG, "At Ann's.", "Thanks", "Yes"]), chat("y1", [LONG, "In the garage."])]
    older = [chat("z1", [LONG]), chat("z2", [LONG, "At Ann's."])]
    assert stored(hermes_home, tmp_path, chats, again, older) == said(again)
    with open_memory(hermes_home) as memory:
        done = import_sessions(memory, stream_file(written(tmp_path, again)))
    assert (done.turns, done.messages, done.known) == (0, 0, 3)


def test_a_short_greeting_without_a_time_is_anybodys(hermes_home: HermesHome, tmp_path: Path) -> None:
    one, two = [chat("x", ["Hi", "Hello!"])], [chat("y", ["Hi", "Hello!", "Who are you?"])]
    assert stored(hermes_home, tmp_path, one, two) == said([*one, *two])


def test_words_of_another_day_are_another_conversation(hermes_home: HermesHome, tmp_path: Path) -> None:
    one, two = [chat("x", [LONG, "Yes"], at=1e9)], [chat("y", [LONG, "Yes"], at=1e9 + 86400)]
    assert stored(hermes_home, tmp_path, one, two) == said([*one, *two])


def test_one_that_was_forked_off_is_not_taken_for_the_one_that_is_in_the_file_too(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    first = [chat("x", [LONG, "b"], at=1e9)]
    later = [chat("fork", [LONG, "b", "d"], at=1e9), chat("x", [LONG, "b", "c"], at=1e9)]
    assert stored(hermes_home, tmp_path, first, later) == said(later)


def test_two_files_that_number_their_conversations_alike_both_come_in(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    one, two = [chat("1", ["I moved to Lisbon", "Nice"])], [chat("1", ["Walnuts make me ill", "Oh"])]
    assert stored(hermes_home, tmp_path, one, two, one, two) == said([*one, *two])


def test_what_stands_in_the_place_of_something_else_is_brought_in(
    hermes_home: HermesHome, tmp_path: Path
) -> None:
    one, two = chat("1", ["Hi", "Hello!", "Tiles?", "Yes"]), chat("1", ["Hi", "Hey!", "Walnuts?", "No"])
    (found,) = stored(hermes_home, tmp_path, [one], [two], [one], [two])
    assert found == tuple(m["content"] for chat in (one, two) for m in chat["messages"])


TALKS = st.lists(
    st.tuples(
        st.lists(st.sampled_from("ab"), min_size=1, max_size=4),
        st.lists(st.sampled_from("ab"), max_size=3),
        st.sampled_from([1e9, 2e9]),
    ),
    min_size=1,
    max_size=4,
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=rounds(50)
)
@given(
    talks=TALKS,
    new=TALKS,
    order=st.randoms(use_true_random=False),
    timed=st.booleans(),
    refs=st.booleans(),
    jsonl=st.booleans(),
)
def test_importing_two_exports_is_importing_the_later_one(
    tmp_path: Path, talks: Any, new: Any, order: Any, timed: bool, refs: bool, jsonl: bool
) -> None:
    def export(name: str, parts: list[tuple[list[str], float]]) -> list[dict[str, Any]]:
        return [
            chat(name + str(i), [LONG.format(word) for word in words], at if timed else None, refs=refs)
            for i, (words, at) in enumerate(parts)
        ]

    first = export("x", [(begun, at) for begun, _, at in talks])
    later = [(begun + more, at) for begun, more, at in talks] + [(begun, at) for begun, _, at in new]
    order.shuffle(later)
    home = HermesHome(Path(tempfile.mkdtemp(dir=tmp_path)))
    exported = export("y", later)
    assert stored(home, tmp_path, first, exported, jsonl=jsonl) == said(exported)


def chat(name: str, texts: list[str], at: float | None = None, refs: bool = False) -> dict[str, Any]:
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": text}
        | ({} if at is None else {"timestamp": at + i})
        | ({"id": f"{name}-{i}"} if refs else {})
        for i, text in enumerate(texts)
    ]
    return {"id": name, "messages": messages}


def said(chats: list[dict[str, Any]]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(m["content"] for m in one["messages"]) for one in chats)


def written(folder: Path, chats: list[dict[str, Any]], *, jsonl: bool = True) -> Path:
    path = folder / "chats.json"
    rows = [
        {"session": one["id"], "ref": m.get("id", ""), **{k: m[k] for k in m if k != "id"}}
        for one in chats
        for m in one["messages"]
    ]
    path.write_text("\n".join(map(json.dumps, rows)) if jsonl else json.dumps(chats))
    return path


def stored(
    home: HermesHome, folder: Path, *exports: list[dict[str, Any]], jsonl: bool = True
) -> Counter[tuple[str, ...]]:
    """What the conversations hold after all these files were imported."""
    with open_memory(home) as memory:
        for chats in exports:
            import_sessions(memory, stream_file(written(folder, chats, jsonl=jsonl)))
        sessions = memory.sessions.list_sessions(limit=100)
        return Counter(
            tuple(m.content for m in memory.sessions.get_messages(one.session.id)) for one in sessions
        )
