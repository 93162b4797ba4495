"""The edge to `brv`: what it is asked, what it answers, and every way in which it fails."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hermes_byterover.client import Brv, argument, failure, program, surroundings

from hermes_core.kit import (
    BackendAuthError,
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    ProviderUnavailable,
    poll,
)
from plugins.byterover.tests.stand_in import DOWN, StandInBrv

SOON = 60.0
MARK = "[hermes note 1]"


def keep(client: Brv, folder: Path, text: str, mark: str = MARK, timeout: float = SOON) -> Any:
    return client.curate(folder, mark, text, timeout)


# ------------------------------------------------------------------ commands


def test_the_status_tells_version_and_account(client: Brv, folder: Path) -> None:
    status = client.status(folder, SOON)
    assert (status["cliVersion"], status["authStatus"]) == ("3.14.0", "not_logged_in")


def test_a_search_gives_paths_scores_and_excerpts(client: Brv, folder: Path, brv: StandInBrv) -> None:
    keep(client, folder, "The tortoise is called Quillfeather.")
    (found,) = client.search(folder, "tortoise", 3, SOON)
    assert "Quillfeather" in found["excerpt"]
    assert found["path"].startswith("conversation/notes/")
    assert brv.calls("search")[0]["words"] == ["search", "--limit", "3", "--format", "json", "--", "tortoise"]
    assert client.search(folder, "zeppelin", 3, SOON) == []


def test_an_answer_names_its_sources_and_not_its_maker(client: Brv, folder: Path) -> None:
    keep(client, folder, "The tortoise is called Quillfeather.")
    answer, sources = client.query(folder, "What is the tortoise called?", SOON)
    assert "Quillfeather" in answer
    assert "ByteRover Knowledge Base" not in answer
    assert sources == [client.search(folder, "tortoise", 1, SOON)[0]["path"]]


@pytest.mark.parametrize("cached", [False, True])
def test_an_answer_that_nothing_is_known_is_no_answer(
    client: Brv, folder: Path, brv: StandInBrv, cached: bool
) -> None:
    if cached:
        brv.fail("query cache")
    assert client.query(folder, "Where is the zeppelin?", SOON) == ("", [])


def test_an_answer_from_the_cache_counts_though_it_names_no_documents(
    client: Brv, folder: Path, brv: StandInBrv
) -> None:
    keep(client, folder, "The tortoise is called Quillfeather.")
    brv.fail("query cache")
    answer, sources = client.query(folder, "What is the tortoise called?", SOON)
    assert "Quillfeather" in answer
    assert sources == []


def test_models_are_connected_with_the_flags_that_are_given(
    client: Brv, folder: Path, brv: StandInBrv
) -> None:
    client.connect(
        folder, "openai-compatible", {"base-url": "http://m/v1", "api-key": "", "model": "m1"}, SOON
    )
    assert client.model(folder, SOON) == "openai-compatible m1"
    words = brv.calls("providers connect")[0]["words"]
    assert words[:7] == [
        "providers",
        "connect",
        "openai-compatible",
        "--base-url",
        "http://m/v1",
        "--model",
        "m1",
    ]


def test_a_login_takes_the_key_and_a_wrong_one_is_told(client: Brv, folder: Path) -> None:
    with pytest.raises(BackendAuthError, match=r"Invalid API key"):
        client.log_in(folder, "bad-key", SOON)
    client.log_in(folder, "good-key", SOON)
    assert client.status(folder, SOON)["authStatus"] == "logged_in"


def test_changes_that_wait_for_review_are_counted(client: Brv, folder: Path, brv: StandInBrv) -> None:
    assert client.pending(folder, SOON) == 0
    brv.fail("curation", pending=True)
    assert keep(client, folder, "Deploys go out on Mondays.").pending == 1
    assert client.pending(folder, SOON) == 1


@pytest.mark.parametrize(
    "text", ["--limit 3", "-x", "--", "$(id) `id`; rm -rf \\", "two\nlines", "half \ud83d", "a\0b"]
)
def test_any_text_is_one_argument_and_never_a_flag(
    client: Brv, folder: Path, brv: StandInBrv, text: str
) -> None:
    client.search(folder, text, 1, SOON)
    keep(client, folder, text)
    assert brv.calls("search")[0]["words"][-1] == argument(text)
    assert brv.calls("curate")[0]["words"][-1] == argument(f"{MARK}\n{text}")


def test_a_text_longer_than_an_argument_may_be_is_cut(client: Brv, folder: Path) -> None:
    entry = keep(client, folder, "ö" * 200_000)
    assert len(entry.context.encode()) <= 100_000


# ------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    ("message", "error"),
    [
        # brv 3.14: oclif/lib/daemon-client.js, server/core/domain/errors/task-error.js
        (
            'No provider connected. Run "brv providers connect byterover" to use the free built-in provider, or '
            "connect another provider.",
            BackendAuthError,
        ),
        ("openai API key is missing from storage.\nPlease reconnect: ...", BackendAuthError),
        ("openai authentication has expired.\nPlease reconnect: ...", BackendAuthError),
        ("LLM provider API key is missing or invalid.", BackendAuthError),
        (
            "Authentication required for cloud sync. Run 'brv login' to connect your account.",
            BackendAuthError,
        ),
        ("Not authenticated. Cloud sync features (push/pull/space) require login.", BackendAuthError),
        (
            'OAuth token has expired. Run "brv providers connect <provider> --oauth" to reconnect.',
            BackendAuthError,
        ),
        ("Your free monthly credits are exhausted. Upgrade to a paid team.", BackendAuthError),
        ("ByteRover billing team is out of credits.", BackendAuthError),
        # what providers of models say, as brv passes it on
        ("Incorrect API key provided: sk-fake.", BackendAuthError),
        ("invalid x-api-key", BackendAuthError),
        ("401 Unauthorized", BackendAuthError),
        ("All 4 retry attempts exhausted: The server had an error", BackendUnavailable),
        ("Rate limit reached for gpt-5 on requests per min", BackendUnavailable),
        (DOWN, BackendUnavailable),
        ("Daemon crashed unexpectedly.\n\nRun 'brv restart' to force a clean restart.", BackendUnavailable),
        ("Failed to connect to the daemon: connect ECONNREFUSED", BackendUnavailable),
        ("Connection error: closed\nRun 'brv restart' if the daemon is unresponsive.", BackendUnavailable),
        ("Agent not available. Please wait for Agent to connect.", BackendUnavailable),
        ("Agent failed to initialize. Run 'brv restart' to force a clean restart.", BackendUnavailable),
        ("Agent disconnected", BackendUnavailable),
        ("Daemon disconnected", BackendUnavailable),
        ("Task timed out after 50s", BackendUnavailable),
        ("Interrupted (daemon terminated)", BackendUnavailable),
        ("Context tree not initialized.", BackendUnavailable),
        ("Invalid search result format", BackendUnavailable),
        ("it took 4013 ms", BackendUnavailable),
        ("Log entry not found: cur-1", BackendNotFound),
        ("Search query is required.", BackendRefused),
        ("Query argument is required.", BackendRefused),
        ("Either a context argument, file reference, or folder reference is required.", BackendRefused),
        ("File validation failed. Please check file paths.", BackendRefused),
    ],
)
def test_what_brv_says_went_wrong_has_its_error(message: str, error: type[Exception]) -> None:
    told = failure("query", message)
    assert type(told) is error
    assert message.split("\n")[0][:40] in str(told)


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        ({"kind": "error", "error": DOWN}, BackendUnavailable, "Daemon failed to start"),
        (
            {"kind": "text", "text": f"Unexpected error: {DOWN}"},
            BackendUnavailable,
            r"without an answer \(code 0\)",
        ),
        ({"kind": "text", "text": ""}, BackendUnavailable, "without an answer"),
        (
            {"kind": "text", "text": '{"command": "search", "data": {"resu'},
            BackendUnavailable,
            "without an answer",
        ),
        ({"kind": "text", "text": '{"success": true}'}, BackendUnavailable, "without an answer"),
        ({"kind": "text", "text": '[1, "two"]'}, BackendUnavailable, "without an answer"),
        ({"kind": "text", "text": '{"data": 7, "success": true}'}, BackendUnavailable, "without an answer"),
        ({"kind": "text", "text": '{"data": [], "success": true}'}, BackendUnavailable, "without an answer"),
        ({"kind": "text", "text": '{"data": {}, "success": false}'}, BackendUnavailable, "no reason given"),
        ({"kind": "crash"}, BackendUnavailable, r"\(code 1\): node:internal"),
        ({"kind": "died"}, BackendUnavailable, "without an answer"),
        ({"kind": "lost"}, BackendUnavailable, "without an answer"),
    ],
)
def test_an_answer_that_is_none_is_never_taken_for_one(
    client: Brv, folder: Path, brv: StandInBrv, fault: dict[str, Any], error: type[Exception], words: str
) -> None:
    brv.fail("search", **fault)
    with pytest.raises(error, match=words):
        client.search(folder, "tortoise", 3, SOON)


def test_noise_around_an_answer_is_passed_over(client: Brv, folder: Path, brv: StandInBrv) -> None:
    answer = '{"command":"search","data":{"results":[{"path":"a.md"}]},"success":true}'
    brv.fail("search", kind="text", text=f"(node:1) Warning: punycode\n{answer}\nUpdate available")
    assert client.search(folder, "x", 1, SOON) == [{"path": "a.md"}]


def test_a_program_without_a_command_is_told_to_be_too_old(client: Brv, folder: Path) -> None:
    with pytest.raises(BackendRefused, match=r"nosuch.*not found.*npm install -g byterover-cli"):
        client.ask(folder, "nosuch", timeout=SOON)
    with pytest.raises(BackendRefused, match=r"Nonexistent flag: --nosuch"):
        client.ask(folder, "status", "--nosuch", timeout=SOON)


def test_a_program_that_hangs_is_killed_with_what_it_started(
    client: Brv, folder: Path, brv: StandInBrv
) -> None:
    brv.fail("search", kind="hang")
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match=r"has not ended after 3 s"):
        client.search(folder, "tortoise", 3, 3.0)
    assert time.monotonic() - began < 30
    (child,) = brv.children
    assert gone(child)


def gone(pid: int) -> bool:
    def ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        stat = Path(f"/proc/{pid}/stat")
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"

    return poll(ended, 30, 0.01)


def test_a_key_shows_in_no_error(client: Brv, folder: Path, brv: StandInBrv) -> None:
    brv.fail("login", kind="hang")
    with pytest.raises(BackendAuthError) as hung:
        client.log_in(folder, "very-secret-key", 0.3)
    assert "very-secret-key" not in str(hung.value)


# ------------------------------------------------------------------ curations


def test_a_curation_is_handed_over_and_followed_to_its_end(
    client: Brv, folder: Path, brv: StandInBrv
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with brv.holding():
            kept = pool.submit(keep, client, folder, "The tortoise is called Quillfeather.", timeout=60.0)
            assert poll(lambda: len(brv.calls("curate view")) >= 3, 60, 0.01)
        entry = kept.result()
    assert (entry.status, entry.kept) == ("completed", True)
    assert [summary for _, summary in entry.changes] == ["what was said"]
    assert brv.calls("curate")[0]["words"][:4] == ["curate", "--detach", "--format", "json"]


def test_one_that_comes_again_is_found_and_not_curated_twice(
    client: Brv, folder: Path, brv: StandInBrv
) -> None:
    first = keep(client, folder, "The tortoise is called Quillfeather.")
    assert keep(client, folder, "The tortoise is called Quillfeather.") == first
    assert len(brv.curated()) == 1
    keep(client, folder, "The tortoise is called Quillfeather.", "[hermes note 12]")
    assert len(brv.curated()) == 2


def test_one_that_takes_longer_is_followed_by_the_next_try(
    client: Brv, folder: Path, brv: StandInBrv
) -> None:
    slow = pytest.raises(BackendUnavailable, match=r"not finished a curation after 2.5 s")
    with brv.holding(), slow as late:
        keep(client, folder, "The tortoise is called Quillfeather.", timeout=2.5)
    assert late.value.retry_after
    assert keep(client, folder, "The tortoise is called Quillfeather.").kept
    assert len(brv.curated()) == 1


def test_one_whose_answer_was_lost_is_found_by_the_next_try(
    client: Brv, folder: Path, brv: StandInBrv
) -> None:
    with brv.trouble("curate", kind="lost"), pytest.raises(BackendUnavailable):
        keep(client, folder, "The tortoise is called Quillfeather.")
    assert keep(client, folder, "The tortoise is called Quillfeather.").kept
    assert len(brv.curated()) == 1


def test_one_that_stored_nothing_is_a_failure_and_tried_again(
    client: Brv, folder: Path, brv: StandInBrv
) -> None:
    with brv.trouble("curation", nothing=True), pytest.raises(BackendRefused, match=r"stored nothing"):
        keep(client, folder, "The tortoise is called Quillfeather.")
    assert keep(client, folder, "The tortoise is called Quillfeather.").kept
    assert len(brv.curated()) == 2


def test_one_that_failed_is_told_with_its_reason_and_tried_again(
    client: Brv, folder: Path, brv: StandInBrv
) -> None:
    with brv.trouble("curation", error="Incorrect API key provided"), pytest.raises(BackendAuthError):
        keep(client, folder, "The tortoise is called Quillfeather.")
    with (
        brv.trouble("curation", error="All 4 retry attempts exhausted: 500"),
        pytest.raises(BackendUnavailable),
    ):
        keep(client, folder, "The tortoise is called Quillfeather.")
    assert keep(client, folder, "The tortoise is called Quillfeather.").kept


def test_another_curation_is_waited_for(client: Brv, folder: Path, brv: StandInBrv) -> None:
    with ThreadPoolExecutor(1) as pool:
        with brv.holding():
            with pytest.raises(BackendUnavailable):
                keep(client, folder, "One.", "[hermes note a]", 2.5)
            looks = len(brv.calls("curate view"))
            kept = pool.submit(keep, client, folder, "Two.", "[hermes note b]", 60.0)
            assert poll(lambda: len(brv.calls("curate view")) >= looks + 2, 60, 0.01)
            assert len(brv.curated()) == 1
        assert kept.result().kept
    assert [entry.kept for entry in client.log(folder, SOON)] == [True, True]


def test_another_curation_that_died_with_its_daemon_is_not_waited_for(
    brv: StandInBrv, folder: Path, tmp_path: Path
) -> None:
    client = Brv(str(brv.path), tmp_path / "data", pause=0.01, wall=lambda: time.time() + 300)
    with brv.trouble("curation", seconds=600), pytest.raises(BackendUnavailable):
        keep(client, folder, "One.", "[hermes note a]", 0.2)
    assert keep(client, folder, "Two.", "[hermes note b]").kept


def test_without_a_model_nothing_is_handed_over(client: Brv, folder: Path, brv: StandInBrv) -> None:
    error = 'No provider connected. Run "brv providers connect byterover" to use the free built-in provider.'
    brv.fail("curate", kind="error", error=error)
    with pytest.raises(BackendAuthError, match=r"hermes-memory byterover brv providers connect"):
        keep(client, folder, "One.")
    assert brv.curated() == []


# ---------------------------------------------------------------- surroundings


def test_the_program_sees_the_profile_and_no_key_of_others(
    client: Brv, folder: Path, brv: StandInBrv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    monkeypatch.setenv("BRV_DATA_DIR", "/elsewhere")
    monkeypatch.setenv("BRV_IAM_BASE_URL", "https://iam.example.org")
    alone = Brv(str(brv.path), tmp_path / "data")
    alone.status(folder, SOON)
    seen = brv.calls("status")[0]
    assert seen["cwd"] == str(folder)
    assert "sk-other" not in seen["env"].values()
    assert seen["env"]["BRV_DATA_DIR"] == str(tmp_path / "data" / "brv")
    assert seen["env"]["XDG_CONFIG_HOME"] == str(tmp_path / "data" / "config")
    assert seen["env"]["BRV_IAM_BASE_URL"] == "https://iam.example.org"
    assert seen["env"]["BRV_DISABLE_AUTOUPDATE"] == "1"
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0


def test_without_isolation_it_uses_what_the_person_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRV_DATA_DIR", "/mine")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")
    seen = surroundings(None)
    assert (seen["BRV_DATA_DIR"], seen["XDG_CONFIG_HOME"]) == ("/mine", "/config")


def test_a_missing_program_is_told_with_how_to_install_it() -> None:
    with pytest.raises(
        ProviderUnavailable, match=r"'no-such-brv' is not installed; npm install -g byterover-cli"
    ):
        program("no-such-brv")


def test_a_batch_file_is_never_given_a_text(tmp_path: Path) -> None:
    batch = tmp_path / "brv.cmd"
    batch.touch(mode=0o755)
    script = tmp_path / "node_modules" / "byterover-cli" / "bin" / "run.js"
    assert program(str(batch)) == ["node", str(script)]
