from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from types import CoroutineType
from typing import Any

import pytest

from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import Availability, MemoryPage, MemoryRecord, Recall, RecallItem
from hermes_core.errors import BackendNotFound, BackendRefused, BackendUnavailable
from hermes_core.manager.call import CallResult, check_result, guarded_call
from hermes_core.manager.worker import Coroutines
from hermes_memory_testing.fakes import Clock

who = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def call() -> Iterator[Callable[..., CallResult]]:
    coroutines = Coroutines("test")

    def call(
        function: Callable[..., Any], hook: str = "handle_tool_call", within: float = 5.0, **arguments: Any
    ) -> CallResult:
        def made() -> Any:
            value = function(**arguments)
            if isinstance(value, CoroutineType):
                value = coroutines.finish(value, within)
            return value if hook == "construct" else check_result(hook, value)

        return guarded_call(hook, made, Clock(), lambda text: text.replace("sk-secret", "[redacted]"))

    yield call
    coroutines.stop()


Call = Callable[..., CallResult]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_it_raises_becomes_an_outcome(call: Call, error: BaseException) -> None:
    def hook() -> str:
        raise error

    outcomes: list[CallResult] = []
    thread = threading.Thread(target=lambda: outcomes.append(call(hook)))
    thread.start()
    thread.join()
    assert outcomes[0].status == "failed"
    assert type(error).__name__ in outcomes[0].error


def test_ctrl_c_of_the_person_is_not_swallowed(call: Call) -> None:
    def hook() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(hook)


def test_an_error_that_cannot_be_shown_is_still_an_outcome(call: Call) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def hook() -> str:
        raise Mute

    assert call(hook).error == "Mute: its message can't be shown"


def test_only_failures_of_the_backend_count(call: Call) -> None:
    def raising(error: Exception) -> Callable[[], str]:
        def hook() -> str:
            raise error

        return hook

    assert call(raising(BackendUnavailable("down"))).counts
    assert call(raising(OSError("reset"))).counts
    assert not call(raising(BackendRefused("too long"))).counts
    assert not call(lambda: 3).counts


def test_a_write_that_finds_nothing_at_the_address_counts_and_a_question_does_not(call: Call) -> None:
    def hook() -> str:
        raise BackendNotFound("nothing there")

    assert not call(hook, "prefetch").counts
    assert not call(hook, "construct").counts
    assert call(hook, "sync_turn").counts


def test_a_secret_in_an_error_is_redacted(call: Call) -> None:
    def hook() -> str:
        raise ValueError("key sk-secret was refused")

    outcome = call(hook)
    assert outcome.error == "ValueError: key [redacted] was refused"
    assert "sk-secret" not in outcome.trace


def test_a_sqlite_connection_on_the_wrong_thread_is_told_what_to_do(call: Call) -> None:
    opened: SimpleQueue[sqlite3.Connection] = SimpleQueue()
    asked = threading.Event()

    def hold() -> None:
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            opened.put(connection)
            asked.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    connection = opened.get()
    assert "hermes_core.kit.Database" in call(lambda: connection.execute("SELECT 1")).error
    asked.set()
    thread.join()


@pytest.mark.parametrize("value", [3, 1.5, object(), b"x", {1}])
@pytest.mark.parametrize(
    "hook",
    [
        "is_available",
        "check",
        "backup_paths",
        "system_prompt_block",
        "prefetch",
        "queue_prefetch",
        "handle_tool_call",
        "on_pre_compress",
        "filter_write",
        "filter_recall",
    ],
)
def test_a_value_of_a_wrong_type_is_a_failed_call(call: Call, hook: str, value: Any) -> None:
    outcome = call(lambda: value, hook)
    assert outcome.status == "failed"
    assert type(value).__name__ in outcome.error


@pytest.mark.parametrize("value", [-1, 1.5, True, "3", None])
def test_a_number_of_writes_is_none_below_zero_and_nothing_else(call: Call, value: Any) -> None:
    assert call(lambda: value, "pending_writes").status == "failed"
    assert call(lambda: 3, "pending_writes").value == 3


WITHOUT_RESULT = [name for name, policy in POLICIES.items() if policy.durable and name != "forget_user"]


@pytest.mark.parametrize("hook", WITHOUT_RESULT)
def test_what_a_hook_without_result_returns_is_left_unread(call: Call, hook: str) -> None:
    assert call(lambda: object(), hook) == CallResult("ok", None)


def test_recall_may_be_text_or_none(call: Call) -> None:
    assert call(lambda: "tea", "prefetch").value == Recall(text="tea")
    assert call(lambda: None, "prefetch").value == Recall()
    items = Recall([RecallItem("tea")])  # type: ignore[arg-type]
    assert call(lambda: items, "prefetch").value == Recall((RecallItem("tea"),))


@pytest.mark.parametrize("bad", [Recall(("tea",)), Recall((RecallItem(3),)), Recall(text=None)])  # type: ignore[arg-type]
def test_a_recall_of_the_wrong_parts_is_a_failed_call(call: Call, bad: Recall) -> None:
    assert call(lambda: bad, "prefetch").status == "failed"


def test_a_tool_result_that_json_can_carry_is_written_as_json(call: Call) -> None:
    assert json.loads(call(lambda: {"found": ["é"]}).value) == {"found": ["é"]}
    assert call(lambda: {"found": object()}).status == "failed"
    assert call(lambda: None).status == "failed"


def test_not_available_without_a_reason_gets_one(call: Call) -> None:
    assert call(lambda: False, "is_available").value.reason
    assert call(lambda: True, "is_available").value == Availability(True)


def test_tool_schemas_come_out_in_one_form(call: Call) -> None:
    wrapped = {"type": "function", "function": {"name": "b", "description": "B"}}
    bare = {"name": "a", "description": None, "parameters": None}
    first, second = call(lambda: [bare, wrapped], "get_tool_schemas").value
    assert first == {"name": "a", "description": "", "parameters": {"type": "object", "properties": {}}}
    assert second["name"] == "b"
    # A tool without a name costs itself only.
    assert call(lambda: [{"name": ""}, bare], "get_tool_schemas").value == (first,)


def test_coroutines_run_on_one_loop_with_the_callers_contextvars(call: Call) -> None:
    async def hook() -> str:
        return f"{id(asyncio.get_running_loop())} {who.get()}"

    who.set("ann")
    first, second = call(hook).value, call(hook).value
    assert first == second
    assert first.endswith(" ann")


def test_a_late_coroutine_is_cancelled(call: Call) -> None:
    cancelled = threading.Event()

    async def hook() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    assert call(hook, within=0.02).status == "late"
    assert cancelled.wait(60)


def test_a_coroutine_that_ends_as_its_time_is_over_has_ended_well(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = Future.result

    def too_late(future: Future[Any], timeout: float | None = None) -> Any:
        value = result(future)
        if timeout is None:
            return value
        raise TimeoutError  # as one that waited in vain, and ran again only after the end

    monkeypatch.setattr(Future, "result", too_late)

    async def hook() -> str:
        return "taken"

    assert call(hook).value == "taken"


def test_a_coroutine_for_which_no_thread_is_left_fails_at_once_and_the_next_one_works(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hook() -> str:
        return "taken"

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as busy:
        busy.setattr(threading.Thread, "start", refuse)
        assert call(hook, within=60.0).error == "RuntimeError: can't start new thread"
    assert call(hook, within=60.0).value == "taken"


def test_what_still_runs_when_the_loop_ends_can_tidy_up() -> None:
    coroutines, tidied, kept = Coroutines("test"), threading.Event(), []

    async def background() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # as who closes a connection
            tidied.set()

    async def hook() -> None:
        kept.append(asyncio.create_task(background()))
        await asyncio.sleep(0)

    coroutines.finish(hook(), 5)
    coroutines.stop()
    assert tidied.wait(60)


def test_a_timeout_error_of_the_provider_is_its_own(call: Call) -> None:
    async def hook() -> str:
        raise TimeoutError("backend")

    assert call(hook).error == "TimeoutError: backend"


def test_blocking_helpers_of_asyncio_run_in_daemon_threads(call: Call) -> None:
    async def hook() -> str:
        return str(await asyncio.to_thread(lambda: threading.current_thread().daemon))

    assert call(hook).value == "True"


def test_a_page_of_memories_has_records_of_the_promised_form(call: Call) -> None:
    page = MemoryPage((MemoryRecord("tea", "1"),), "next")
    assert call(lambda: page, "export_memories").value == page
    wrong: list[Any] = [
        None,
        [],
        MemoryPage(("tea",)),
        MemoryPage((), 3),
        MemoryPage((MemoryRecord("tea", tags=3),)),
    ]  # type: ignore[arg-type]
    for value in wrong:
        assert call(lambda value=value: value, "export_memories").status == "failed"
