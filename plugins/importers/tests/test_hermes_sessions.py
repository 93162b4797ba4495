"""The folder `sessions` of a home of Hermes Agent: two forms of one session, cron, and who talks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes_core import HermesHome
from hermes_core.memory import open_memory
from hermes_memory_importers import ImportedSession, SkipLog, read_file, stream_file
from hermes_memory_importers.copies import CopyFinder
from hermes_memory_importers.run import ImportResult, import_sessions
from hermes_memory_testing.fakes import RecordingProvider

ID = "20260517_113230_64b5be"
ASKED, LOOKED = "where is the spare key of the garden shed, please", "Let me look."
MORE, ANSWER = "and the bike key", "In the kitchen drawer."
CALL = {"id": "c1", "type": "function", "function": {"name": "session_search", "arguments": "{}"}}


def snapshot(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The last state of the model's context, without times of messages."""
    return {
        "session_id": ID,
        "model": "m",
        "platform": "telegram",
        "session_start": "2026-05-17T11:32:30",
        "last_updated": "2026-05-17T11:33:41",
        "message_count": len(messages),
        "messages": list(messages),
        **more,
    }


def says(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def line(role: str, content: str, second: int, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, "timestamp": f"2026-05-17T11:32:{second}.000000", **more}


HEADER = {"role": "session_meta", "tools": [], "model": "m", "platform": "telegram"}
SNAPSHOT = snapshot(
    says("user", ASKED),
    says("assistant", f"<think>\nwhere did they put it\n</think>\n{LOOKED}", tool_calls=[CALL]),
    says("tool", "under the pot", tool_call_id="c1"),
    says("user", MORE),
)
TRANSCRIPT = [
    HEADER,
    line("user", ASKED, 32),
    line("assistant", LOOKED, 33, tool_calls=[CALL]),
    line("user", MORE, 40),
    line("assistant", ANSWER, 41),
]
UNION = [ASKED, LOOKED, "under the pot", MORE, ANSWER]


def home(tmp_path: Path, **files: Any) -> dict[str, Path]:
    folder = tmp_path / "old" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    names = {"snapshot": f"session_{ID}.json", "transcript": f"{ID}.jsonl", "index": "sessions.json"}
    paths = {}
    for kind, data in files.items():
        paths[kind] = folder / names.get(kind, kind)
        lines = data if isinstance(data, list) else [data]
        paths[kind].write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return paths


def words(session: ImportedSession) -> list[str]:
    return [message.content for turn in session.turns for message in turn.messages]


def bring(hermes_home: HermesHome, *paths: Path) -> tuple[ImportResult, list[str], list[float]]:
    with open_memory(hermes_home) as memory:
        done, copies = ImportResult(), CopyFinder(memory.sessions)
        for path in paths:
            done = done.plus(import_sessions(memory, stream_file(path), copies=copies))
        assert done.sessions == 1
        assert len(memory.sessions.list_sessions(everybody=True)) == 1
        messages = memory.sessions.get_messages(f"hermes-agent-{ID}")
        return done, [message.content for message in messages], [message.timestamp for message in messages]


@pytest.mark.parametrize("order", [("snapshot", "transcript"), ("transcript", "snapshot")])
def test_two_files_of_one_folder_are_one_session_with_all_messages_in_order(
    tmp_path: Path, hermes_home: HermesHome, order: tuple[str, str]
) -> None:
    paths = home(tmp_path, snapshot=SNAPSHOT, transcript=TRANSCRIPT)
    done, stored, times = bring(hermes_home, *(paths[kind] for kind in order))
    assert stored == UNION
    assert (done.messages, done.turns) == (5, 2)
    assert times == sorted(times)
    assert times[0] == 1779017552.0
    assert bring(hermes_home, *paths.values())[0].messages == 0


@pytest.mark.parametrize("order", [("snapshot", "transcript"), ("transcript", "snapshot")])
def test_two_forms_from_different_folders_are_one_session_with_all_messages(
    tmp_path: Path, hermes_home: HermesHome, order: tuple[str, str]
) -> None:
    paths = {
        "snapshot": home(tmp_path / "a", snapshot=SNAPSHOT)["snapshot"],
        "transcript": home(tmp_path / "b", transcript=TRANSCRIPT)["transcript"],
    }
    chosen = [paths[kind] for kind in order]
    _, stored, _ = bring(hermes_home, *chosen)
    assert sorted(stored) == sorted(UNION)
    done, stored, _ = bring(hermes_home, *chosen, *reversed(chosen))
    assert (done.messages, sorted(stored)) == (0, sorted(UNION))


def test_a_form_that_cut_a_text_brings_it_once(tmp_path: Path, hermes_home: HermesHome) -> None:
    long = "the deployment of the second server failed because its disk was full"
    cut = home(tmp_path / "a", snapshot=snapshot(says("user", ASKED), says("assistant", long[:50])))
    whole = home(tmp_path / "b", transcript=[HEADER, line("user", ASKED, 32), line("assistant", long, 33)])
    _, stored, _ = bring(hermes_home, whole["transcript"], cut["snapshot"])
    assert stored == [ASKED, long]


def test_a_snapshot_alone_has_its_id_its_platform_and_times_of_its_day(tmp_path: Path) -> None:
    (session,) = read_file(home(tmp_path, snapshot=SNAPSHOT)["snapshot"])
    assert (session.id, session.source) == (f"hermes-agent-{ID}", "telegram")
    assert words(session) == [ASKED, LOOKED, "under the pot", MORE]
    assert session.turns[0].messages[2].tool_name == "session_search"
    times = [message.timestamp for turn in session.turns for message in turn.messages]
    assert times == [1779017550.0, 1779017551.0, 1779017552.0, 1779017553.0]


def test_a_transcript_without_its_header_is_known_by_its_name(tmp_path: Path) -> None:
    path = home(tmp_path, transcript=TRANSCRIPT[1:])["transcript"]
    assert [session.id for session in read_file(path)] == [f"hermes-agent-{ID}"]


def test_the_prompt_of_a_cron_job_is_no_word_of_the_person_and_no_provider_is_told(
    tmp_path: Path, hermes_home: HermesHome
) -> None:
    prompt = "[SYSTEM: You are running as a scheduled cron job.]\n\nCheck the spare key"
    cron = snapshot(says("user", prompt), says("assistant", "[SILENT]"), platform="cron")
    cron["session_id"] = "cron_ab12_20260519_080000"
    plain = {**cron, "session_id": "cron_ab12_20260520_080000"}
    plain["messages"] = [says("user", "Check the list"), says("assistant", "Done.")]
    del plain["platform"]
    paths = home(tmp_path, **{f"session_{one['session_id']}.json": one for one in (cron, plain)})
    provider = RecordingProvider()
    with open_memory(hermes_home, provider=provider) as memory:
        for path in paths.values():
            import_sessions(memory, stream_file(path))
        assert memory.flush(30)
        sources = {one.session.source for one in memory.sessions.list_sessions()}
        assert sources == {"cron"}
        stored = memory.sessions.get_messages("hermes-agent-cron_ab12_20260519_080000")
        assert [message.content for message in stored] == ["[SILENT]"]
    assert provider.of("sync_turn") == []


def test_the_index_of_the_folder_tells_who_talks(tmp_path: Path, hermes_home: HermesHome) -> None:
    origin = {"platform": "telegram", "user_id": "42", "chat_id": "7", "chat_type": "dm", "thread_id": None}
    index = {"agent:main:telegram:dm:7": {"session_id": ID, "origin": origin}}
    paths = home(tmp_path, snapshot=SNAPSHOT, index=index)
    (session,) = read_file(paths["snapshot"])
    assert {"platform": "telegram", "user_id": "42", "chat_id": "7"}.items() <= session.identity.items()
    with open_memory(hermes_home) as memory:
        import_sessions(memory, stream_file(paths["snapshot"]))
        assert memory.sessions.past.search("garden", user="telegram:42")
        assert not memory.sessions.past.search("garden", user="")


def test_an_index_and_a_dumped_request_are_counted_and_bring_nothing(tmp_path: Path) -> None:
    dump = {
        "session_id": ID,
        "reason": "max_retries",
        "request": {"body": {"messages": [says("user", ASKED)]}},
    }
    paths = home(tmp_path, **{"request_dump_1.json": dump, "sessions.json": {"k": {"session_id": ID}}})
    for path in paths.values():
        skips = SkipLog()
        assert list(stream_file(path, skips=skips)) == []
        assert [skip.count for skip in skips.all()] == [1]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ('[The user sent a voice message~ Here\'s what they said: "call Mum"]', "call Mum"),
        (
            '[The user sent a voice message~ Here\'s what they said: "call Mum"]\n\nat six',
            "call Mum\n\nat six",
        ),
        ('[Replying to: "see [1]"]\n\nyes, that one', "yes, that one"),
        ("[System note: The session was reset.]\n\nhello again", "hello again"),
        ("[Note: buy milk]\n\nand bread [1]\n\nand eggs", "[Note: buy milk]\n\nand bread [1]\n\nand eggs"),
        ("[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns", ""),
        ("[Your active task list was preserved across context compression]\n- [>] x", ""),
    ],
)
def test_what_the_person_said_within_a_frame_of_the_gateway_is_theirs(
    tmp_path: Path, sent: str, words: str
) -> None:
    path = home(tmp_path, snapshot=snapshot(says("user", sent), says("assistant", "Yes.")))["snapshot"]
    skips = SkipLog()
    ((_, turns),) = stream_file(path, skips=skips)
    said = [message.content for turn in turns for message in turn.messages if message.role == "user"]
    assert said == ([words] if words else [])
    counted = {skip.reason: skip.count for skip in skips.all()}
    assert counted.get("texts that Hermes Agent wrote in the person's name", 0) == (words != sent)


def test_a_state_db_and_the_files_of_its_home_are_one_session(
    tmp_path: Path, hermes_home: HermesHome
) -> None:
    paths = home(tmp_path, snapshot=SNAPSHOT)
    export = tmp_path / "export.json"
    rows = [
        {"id": number, "session_id": ID, "timestamp": 1779017552.0 + number, **message}
        for number, message in enumerate(SNAPSHOT["messages"], 1)
    ]
    rows[1] = {**rows[1], "content": LOOKED}
    rows.append({"id": 5, "timestamp": 1779017560.0, **says("assistant", ANSWER)})
    session = {
        "id": ID,
        "source": "telegram",
        "started_at": 1779017550.0,
        "end_reason": None,
        "messages": rows,
    }
    export.write_text(json.dumps([session]))
    done, stored, _ = bring(hermes_home, paths["snapshot"], export)
    assert stored == UNION
    assert done.messages == 5
    assert bring(hermes_home, export, paths["snapshot"])[0].messages == 0


def test_snapshots_of_several_sessions_may_stand_in_one_file(tmp_path: Path) -> None:
    other = {**snapshot(says("user", MORE)), "session_id": "20260518_113230_64b5be"}
    path = tmp_path / "all.json"
    path.write_text(json.dumps([SNAPSHOT, other, {"session_id": 7}]))
    skips = SkipLog()
    sessions = [head.id for head, turns in stream_file(path, skips=skips) if list(turns)]
    assert sessions == [f"hermes-agent-{ID}", "hermes-agent-20260518_113230_64b5be"]
    assert [skip.count for skip in skips.all() if skip.fault] == [1]


@pytest.mark.parametrize("fact", ["platform", "session_start", "title"])
def test_a_fact_that_can_not_be_read_costs_no_message(tmp_path: Path, fact: str) -> None:
    path = home(tmp_path, snapshot=snapshot(says("user", ASKED), **{fact: ["odd"]}))["snapshot"]
    skips = SkipLog()
    ((_, turns),) = stream_file(path, skips=skips)
    assert [message.content for turn in turns for message in turn.messages] == [ASKED]
    assert [skip.fault for skip in skips.all()] == [True]


@pytest.mark.parametrize("turned", [False, True])
def test_a_form_that_names_no_user_belongs_to_the_user_of_the_other_form(
    tmp_path: Path, hermes_home: HermesHome, turned: bool
) -> None:
    export = tmp_path / "export.json"
    rows = [{"id": 1, "timestamp": 1779017552.0, **says("user", ASKED)}]
    session = {"id": ID, "source": "telegram", "user_id": "42", "chat_id": "7", "started_at": 1779017550.0}
    export.write_text(json.dumps([{**session, "end_reason": None, "messages": rows}]))
    paths = [export, home(tmp_path, snapshot=snapshot(says("user", ASKED), says("user", MORE)))["snapshot"]]
    bring(hermes_home, *(paths[::-1] if turned else paths))
    with open_memory(hermes_home) as memory:
        assert MORE in [hit.text for hit in memory.sessions.past.search("bike", user="telegram:42")]
        assert memory.sessions.past.search("key", user="") == []


def test_a_snapshot_without_any_time_has_that_of_its_id(tmp_path: Path) -> None:
    bare = {"session_id": ID, "platform": "cli", "model": "m", "messages": [says("user", ASKED)]}
    (session,) = read_file(home(tmp_path, snapshot=bare)["snapshot"])
    assert session.started_at == session.turns[0].messages[0].timestamp == 1779017550.0
    odd = {**bare, "session_id": "20269999_999999_ab"}
    assert read_file(home(tmp_path, snapshot=odd)["snapshot"])[0].started_at is None


def test_a_saved_conversation_without_an_id_keeps_its_time(tmp_path: Path) -> None:
    saved = {"model": "m", "session_start": "2026-05-17T11:32:30", "messages": [says("user", ASKED)]}
    path = home(tmp_path, **{"hermes_conversation_20260517_113230.json": saved})
    (session,) = read_file(next(iter(path.values())))
    assert session.id.startswith("hermes-agent-")
    assert (session.minted, session.started_at) == (True, 1779017550.0)
