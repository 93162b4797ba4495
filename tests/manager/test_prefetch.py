from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from hermes_core.contract.values import (
    Capabilities,
    Query,
    Recall,
    RecallItem,
    Session,
    SessionSwitch,
    ToolCall,
)
from hermes_core.errors import BackendRefused, BackendUnavailable
from hermes_core.home import HermesHome
from hermes_core.manager.breaker import COOLDOWN_S, MAX_FAILURES
from hermes_core.manager.manager import MemoryManager, RecallPart
from hermes_core.manager.prefetch import WARMED_TTL_S, RecallResult, cut_to_budget
from hermes_core.manager.stats import RECALL_FAILURE_TTL_S
from hermes_memory_testing.fakes import Clock, RaisingProvider, RecordingProvider, make_session
from tests.manager.conftest import until

OpenManager = Callable[..., MemoryManager]

A, B = make_session("a"), make_session("b")


def start(manager: MemoryManager) -> MemoryManager:
    manager.initialize_all(A)
    return manager


def part(result: RecallResult) -> RecallPart:
    (only,) = result.parts
    return only


def text(result: RecallResult) -> str:
    return part(result).recall.render()


def warmed(manager: MemoryManager, session: Session) -> bool:
    """Whether a result has come for the session's next turn."""
    return until(lambda: manager.prefetch._warmed[("fake", session.id, session.owner)]._recall)


def test_the_current_question_is_asked_first(open_manager: OpenManager) -> None:
    manager = start(open_manager(RecordingProvider()))
    result = manager.prefetch_all(Query("tea?"), A)
    assert text(result) == "- a: tea?"
    assert (part(result).origin, part(result).state, part(result).reason) == ("fresh", "active", "")
    assert result.contexts == [("fake", "- a: tea?")]
    assert 0 <= part(result).elapsed_ms <= result.elapsed_ms


def test_a_fresh_answer_wins_over_the_warmed_one(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = start(open_manager(provider))
    manager.queue_prefetch_all(Query("old"), A)
    assert provider.wait_for("queue_prefetch")
    assert text(manager.prefetch_all(Query("new"), A)) == "- a: new"


@pytest.mark.usefixtures("begun_is_late")
def test_a_late_answer_gives_way_to_the_warmed_one_which_is_taken_once(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = start(open_manager(provider, deadlines={"prefetch": 0.5}))
    manager.queue_prefetch_all(Query("warm"), A)
    assert warmed(manager, A)
    gate = provider.gates["prefetch"] = threading.Event()
    result = manager.prefetch_all(Query("now"), A)
    assert (text(result), part(result).origin) == ("- a: warm", "warmed")
    assert part(result).state == "degraded"
    assert "prefetch late" in part(result).reason
    assert part(manager.prefetch_all(Query("again"), A)).origin == "none"
    gate.set()


def test_a_late_answer_becomes_the_warmed_one_of_its_session(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    gate = provider.gates["prefetch"] = threading.Event()
    manager = start(open_manager(provider, deadlines={"prefetch": 0.5}))
    assert part(manager.prefetch_all(Query("late"), A)).origin == "none"
    gate.set()
    del provider.gates["prefetch"]
    assert warmed(manager, A)
    provider.results["prefetch"] = RuntimeError("down")
    assert part(manager.prefetch_all(Query("now"), B)).origin == "none"
    result = manager.prefetch_all(Query("now"), A)
    assert (text(result), part(result).origin) == ("- a: late", "warmed")


@pytest.mark.parametrize("second", [RuntimeError("down"), Recall()])
def test_a_preparation_that_brings_nothing_takes_nothing_from_the_one_before(
    open_manager: OpenManager, second: object
) -> None:
    provider = RecordingProvider()
    manager = start(open_manager(provider))
    manager.queue_prefetch_all(Query("warm"), A)
    assert warmed(manager, A)
    provider.results["queue_prefetch"] = second
    manager.queue_prefetch_all(Query("colder"), A)
    provider.results["prefetch"] = RuntimeError("down")
    result = manager.prefetch_all(Query("now"), A)  # behind it, on the same thread
    assert provider.hooks[-2:] == ["queue_prefetch", "prefetch"]
    assert (text(result), part(result).origin) == ("- a: warm", "warmed")


def test_a_warmed_answer_that_is_too_old_is_none(open_manager: OpenManager, clock: Clock) -> None:
    provider = RecordingProvider()
    manager = start(open_manager(provider))
    manager.queue_prefetch_all(Query("warm"), A)
    assert warmed(manager, A)
    clock.advance(WARMED_TTL_S + 1)
    provider.results["prefetch"] = RuntimeError("down")
    result = manager.prefetch_all(Query("now"), A)
    assert (part(result).origin, text(result)) == ("none", "")
    assert part(result).reason == "prefetch failed: RuntimeError: down"


def test_what_was_warmed_for_a_session_that_switched_is_dropped(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = start(open_manager(provider))
    manager.queue_prefetch_all(Query("warm"), A)
    assert warmed(manager, A)
    manager.on_session_switch(SessionSwitch("x", A, B, "new", reset=True))
    provider.results["prefetch"] = RuntimeError("down")
    assert part(manager.prefetch_all(Query("now"), A)).origin == "none"
    assert part(manager.prefetch_all(Query("now"), B)).origin == "none"


def test_a_result_under_way_at_the_switch_is_dropped(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    gate = provider.gates["queue_prefetch"] = threading.Event()
    manager = start(open_manager(provider))
    manager.queue_prefetch_all(Query("warm"), A)
    assert provider.wait_for("queue_prefetch")
    manager.on_session_switch(SessionSwitch("x", A, A, "rewind"))
    gate.set()
    assert manager.handle_tool_call(ToolCall("fake_remember", {}), A)  # after it, on the same worker
    provider.results["prefetch"] = RuntimeError("down")
    assert part(manager.prefetch_all(Query("now"), A)).origin == "none"


def test_a_preparation_that_has_not_begun_gives_way_to_a_newer_one(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    gate = provider.gates["on_turn_start"] = threading.Event()
    manager = start(open_manager(provider))
    manager.on_turn_start(1, "hi", A)
    manager.on_turn_start(2, "hi", A)
    for question in ("one", "two", "three"):
        manager.queue_prefetch_all(Query(question), A)
    gate.set()
    assert provider.wait_for("queue_prefetch")
    assert manager.flush(30)
    assert [call["query"].text for call in provider.of("queue_prefetch")] == ["three"]


def test_a_recall_that_could_not_begin_says_behind_what_it_waited(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = start(open_manager(provider, deadlines={"prefetch": 0.5}))
    gate = provider.gates["queue_prefetch"] = threading.Event()
    manager.queue_prefetch_all(Query("next"), A)
    assert provider.wait_for("queue_prefetch")
    waited = part(manager.prefetch_all(Query("now"), B))
    gate.set()
    assert (waited.origin, waited.state) == ("none", "active")
    assert waited.reason.startswith("prefetch skipped: waited 0.")
    assert waited.reason.endswith(" s in line behind queue_prefetch")


def test_turn_start_comes_before_prefetch_of_the_same_turn(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = start(open_manager(provider))
    for number in range(10):
        manager.on_turn_start(number, "hi", A)
        manager.prefetch_all(Query("hi"), A)
    assert provider.hooks[3:] == ["on_turn_start", "prefetch"] * 10


def test_two_interleaved_sessions_never_see_each_others_recall(open_manager: OpenManager) -> None:
    manager = start(open_manager(RecordingProvider()))
    wrong: list[str] = []

    def talk(name: str) -> None:
        session = make_session(name)
        for n in range(100):
            manager.on_turn_start(n, "hi", session)
            result = manager.prefetch_all(Query(f"q{n}"), session)
            if text(result) != f"- {name}: q{n}":
                wrong.append(f"{name}: {result}")
            manager.queue_prefetch_all(Query(f"w{n}"), session)

    threads = [threading.Thread(target=talk, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_interleaved_sessions_never_see_each_others_warmed_results(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    manager = start(open_manager(provider))
    for session in (A, B):
        manager.queue_prefetch_all(Query("warm"), session)
    assert warmed(manager, A)
    assert warmed(manager, B)
    provider.results["prefetch"] = RuntimeError("down")
    assert text(manager.prefetch_all(Query("now"), B)) == "- b: warm"
    assert text(manager.prefetch_all(Query("now"), A)) == "- a: warm"


def test_providers_are_asked_in_parallel_and_one_that_fails_takes_nothing_from_the_other(
    open_manager: OpenManager,
) -> None:
    builtin = RecordingProvider()
    builtin.name = "builtin"  # type: ignore[misc]
    builtin.results["get_tool_schemas"] = []
    manager = open_manager()
    assert manager.add_provider(builtin, builtin=True)
    assert manager.add_provider(RaisingProvider())
    manager.initialize_all(A)
    result = manager.prefetch_all(Query("tea"), A)
    assert [(part.provider, part.origin) for part in result.parts] == [
        ("builtin", "fresh"),
        ("raising", "none"),
    ]
    assert builtin.threads["prefetch"] == {threading.current_thread().name}


def test_a_provider_that_is_not_ready_is_not_waited_for(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    gate = provider.gates["initialize"] = threading.Event()
    manager = start(open_manager(provider, start_wait=0.01))
    result = manager.prefetch_all(Query("tea"), A)
    assert result.elapsed_ms < 15_000
    assert part(result).state == "degraded"
    assert "initialize has run" in part(result).reason
    gate.set()
    assert until(lambda: manager.health()[0].state == "active")
    assert part(manager.prefetch_all(Query("tea"), A)).origin == "fresh"


def between_turns(manager: MemoryManager) -> None:
    """Until what runs in the background has ended: a tool call goes the same way, after it."""
    manager.handle_tool_call(ToolCall("fake_remember", {}), A)


def test_a_recall_that_failed_is_asked_for_but_not_waited_for_until_one_works(
    open_manager: OpenManager,
) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = OSError("unreachable")
    manager = start(open_manager(provider))
    assert part(manager.prefetch_all(Query("tea"), A)).reason == "prefetch failed: OSError: unreachable"
    gate = provider.gates["prefetch"] = threading.Event()
    for _ in range(2):
        result = manager.prefetch_all(Query("mate"), A)
        assert (part(result).origin, part(result).state) == ("none", "degraded")
        assert "not waited for" in part(result).reason
        health = manager.health()[0]
        assert (health.state, health.reason) == (
            "degraded",
            "no turn waits for its recall, because the last one failed: prefetch: OSError: unreachable",
        )
    provider.results.clear()
    gate.set()
    assert warmed(manager, A)
    assert manager.health()[0].state == "active"
    assert [call["query"].text for call in provider.of("prefetch")] == ["tea", "mate"]
    assert part(manager.prefetch_all(Query("coffee"), A)).origin == "fresh"


def test_a_recall_that_stood_in_line_behind_others_says_nothing_against_the_backend(
    open_manager: OpenManager,
) -> None:
    class InTurn(RecordingProvider):
        def prefetch(self, query: Query, session: Session) -> Recall:
            answer: Recall = self.answer("prefetch", query=query, session=session)
            gates[query.text].wait()
            return answer

    gates = {text: threading.Event() for text in ("tea", "mate", "coffee")}
    gates["coffee"].set()
    provider = InTurn()
    manager = start(open_manager(provider, clock=time.monotonic, deadlines={"prefetch": 2.0}))
    first = threading.Thread(target=manager.prefetch_all, args=(Query("tea"), A))
    first.start()
    assert provider.wait_for("prefetch")
    threading.Timer(1.0, gates["tea"].set).start()  # so that half of its time is left to the second
    result = manager.prefetch_all(Query("mate"), B)
    first.join()
    gates["mate"].set()
    assert (part(result).origin, part(result).state) == ("none", "active")
    assert "in line" in part(result).reason
    assert manager.health()[0].breakers["read"] == "closed"
    assert warmed(manager, B)
    assert part(manager.prefetch_all(Query("coffee"), A)).origin == "fresh"


def test_each_side_is_told_with_its_own_error(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = OSError("no route")
    provider.results["handle_tool_call"] = OSError("disk full")
    manager = start(open_manager(provider))
    manager.prefetch_all(Query("tea"), A)
    manager.handle_tool_call(ToolCall("fake_remember", {}), A)
    health = manager.health()[0]
    assert health.reason.endswith("the last one failed: prefetch: OSError: no route")
    assert health.last_error == "handle_tool_call: OSError: disk full"
    for _ in range(5):
        manager.handle_tool_call(ToolCall("fake_remember", {}), A)
    manager._registry.external[0].stats.last_error = "sync_turn: OSError: of the other side"
    reason = manager.health()[0].reason
    assert reason == "read breaker open, last error: handle_tool_call: OSError: disk full"


def test_after_a_turn_whose_recall_failed_it_is_asked_once_more(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = OSError("unreachable")
    manager = start(open_manager(provider))
    assert part(manager.prefetch_all(Query("tea"), A)).origin == "none"
    provider.results.clear()
    manager.queue_prefetch_all(Query("tea"), A)
    between_turns(manager)
    assert text(manager.prefetch_all(Query("mate"), A)) == "- a: mate"
    manager.queue_prefetch_all(Query("mate"), A)
    assert provider.wait_for("queue_prefetch")


def test_small_talk_says_nothing_about_a_backend_that_is_down(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = OSError("unreachable")
    manager = start(open_manager(provider))
    manager.prefetch_all(Query("tea"), A)
    provider.results["prefetch"] = None
    for number in range(3):
        manager.on_turn_start(number, "thanks", A)
        assert "not waited for" in part(manager.prefetch_all(Query("thanks"), A)).reason
        manager.rebuild_system_prompt(A)
        assert until(manager.prefetch._probes["fake"].future.done)


def test_a_tool_that_fails_or_works_says_nothing_about_recall(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["handle_tool_call"] = OSError("too slow")
    manager = start(open_manager(provider))
    between_turns(manager)
    assert part(manager.prefetch_all(Query("tea"), A)).origin == "fresh"
    provider.results = {"prefetch": OSError("unreachable")}
    manager.prefetch_all(Query("tea"), A)
    between_turns(manager)
    assert "not waited for" in part(manager.prefetch_all(Query("tea"), A)).reason


def test_a_probe_whose_caller_was_called_away_leaves_the_place_to_another(
    open_manager: OpenManager, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = RecordingProvider()
    provider.results["handle_tool_call"] = OSError("unreachable")
    manager = start(open_manager(provider))
    call = ToolCall("fake_remember", {})
    for _ in range(MAX_FAILURES):
        manager.handle_tool_call(call, A)
    provider.results.clear()
    clock.advance(COOLDOWN_S)
    with monkeypatch.context() as patched:
        alarm = raiser(TimeoutError("the alarm of a host"))
        patched.setattr("hermes_core.manager.worker.wait_unless_stopped", alarm)
        with pytest.raises(TimeoutError):
            manager.handle_tool_call(call, A)
    assert "left alone" not in manager.handle_tool_call(call, A)


def raiser(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_a_recall_that_was_refused_is_no_outage(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = BackendRefused("too long")
    manager = start(open_manager(provider))
    refused = part(manager.prefetch_all(Query("tea"), A))
    assert (refused.origin, refused.state, refused.reason) == (
        "none",
        "degraded",
        "prefetch failed: too long",
    )
    provider.results.clear()
    assert part(manager.prefetch_all(Query("tea"), A)).origin == "fresh"


def test_a_failure_of_long_ago_is_no_reason_not_to_wait(open_manager: OpenManager, clock: Clock) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = OSError("unreachable")
    manager = start(open_manager(provider))
    manager.prefetch_all(Query("tea"), A)
    provider.results.clear()
    clock.advance(RECALL_FAILURE_TTL_S)
    assert part(manager.prefetch_all(Query("tea"), A)).origin == "fresh"


def test_a_breaker_that_opened_lets_one_recall_through_after_a_while(
    open_manager: OpenManager, clock: Clock
) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = OSError("unreachable")
    manager = start(open_manager(provider))
    for number in range(10):
        manager.on_turn_start(number, "hi", A)
        result = manager.prefetch_all(Query("tea"), A)
        assert manager.ask("fake", "backup_paths").ok  # on the same worker, so the recall has been judged
    assert len(provider.of("prefetch")) == 5
    assert "prefetch open: left alone for 60 s more" in part(result).reason
    provider.results.clear()
    manager.on_turn_start(1, "hi", A)
    clock.advance(60)
    manager.on_turn_start(2, "hi", A)
    gate = provider.gates["prefetch"] = threading.Event()  # what is there at once would count as warmed
    assert part(manager.prefetch_all(Query("tea"), A)).origin == "none"
    gate.set()
    assert until(lambda: manager.health()[0].breakers["read"] == "closed")
    assert part(manager.prefetch_all(Query("tea"), A)).origin == "fresh"


@pytest.mark.parametrize("hook", ["prefetch", "on_turn_start"])
def test_a_provider_that_hangs_costs_one_wait_and_then_none(open_manager: OpenManager, hook: str) -> None:
    provider = RecordingProvider()
    gate = provider.gates[hook] = threading.Event()
    manager = start(
        open_manager(provider, clock=time.monotonic, deadlines={"prefetch": 2.0, "on_turn_start": 0.3})
    )
    waits = []
    for number in range(4):
        manager.on_turn_start(number, "hi", A)
        waits.append(manager.prefetch_all(Query("tea"), A).elapsed_ms)
    gate.set()
    assert [wait > 1900 for wait in waits] == [True, False, False, False]


class SlowOnce(RecordingProvider):
    """Answers its first questions after the deadline, when their gate is opened, and all others at once."""

    def __init__(self, slow: int = 1) -> None:
        super().__init__()
        self.slow_gates = [threading.Event() for _ in range(slow)]
        self.lock = threading.Lock()

    def prefetch(self, query: Query, session: Session) -> Recall:
        answer: Recall = self.answer("prefetch", query=query, session=session)
        with self.lock:
            gate = self.slow_gates.pop(0) if self.slow_gates else None
        if gate is not None:
            gate.wait()
        return answer


@pytest.mark.usefixtures("begun_is_late")
def test_after_a_single_late_recall_the_next_turn_waits_again(open_manager: OpenManager) -> None:
    provider = SlowOnce()
    (gate,) = provider.slow_gates
    manager = start(open_manager(provider, clock=time.monotonic, deadlines={"prefetch": 1.0}))
    late = part(manager.prefetch_all(Query("tea"), A))
    assert (late.origin, late.reason) == ("none", "prefetch late: no answer within 1 s")
    assert manager.health()[0].breakers["read"] == "closed"
    fresh = part(manager.prefetch_all(Query("mate"), A))  # while the late call still runs
    assert (fresh.origin, fresh.recall.render()) == ("fresh", "- a: mate")
    gate.set()
    assert until(lambda: manager.health()[0].state == "active")


@pytest.mark.usefixtures("begun_is_late")
def test_a_late_recall_that_answers_after_all_is_no_failure(open_manager: OpenManager) -> None:
    provider = SlowOnce()
    (gate,) = provider.slow_gates
    manager = start(open_manager(provider, deadlines={"prefetch": 0.3}))
    assert part(manager.prefetch_all(Query("tea"), A)).origin == "none"
    assert "the next turn asks again" in manager.problems()[0]
    gate.set()
    assert warmed(manager, A)
    assert manager.problems() == []
    assert manager._registry.external[0].stats.breakers["read"].at_rest
    assert part(manager.prefetch_all(Query("mate"), A)).origin == "fresh"


@pytest.mark.usefixtures("begun_is_late")
def test_answers_that_are_late_again_and_again_open_no_breaker(open_manager: OpenManager) -> None:
    provider = SlowOnce(10)
    gates = list(provider.slow_gates)
    manager = start(open_manager(provider, deadlines={"prefetch": 0.3}))
    origins = []
    for gate in gates:
        origins.append(part(manager.prefetch_all(Query("tea"), A)).origin)
        gate.set()
        assert warmed(manager, A)
        assert manager.health()[0].breakers["read"] == "closed"
    assert origins == ["none"] + ["warmed"] * 9


@pytest.mark.parametrize("failures", [1, 4])
def test_slow_failures_open_the_breaker_no_sooner_than_quick_ones(
    open_manager: OpenManager, clock: Clock, failures: int
) -> None:
    class TimesOut(RecordingProvider):
        def prefetch(self, query: Query, session: Session) -> Recall:
            clock.advance(3.1)
            answer: Recall = self.answer("prefetch", query=query, session=session)
            return answer

    provider = TimesOut()
    provider.results["prefetch"] = BackendUnavailable("no answer within 3 s")
    manager = start(open_manager(provider))
    for _ in range(failures):
        manager.prefetch_all(Query("tea"), A)
        between_turns(manager)
    assert manager._registry.external[0].stats.breakers["read"].closed
    provider.results.clear()
    manager.queue_prefetch_all(Query("tea"), A)
    between_turns(manager)
    assert part(manager.prefetch_all(Query("mate"), A)).origin == "fresh"


def test_nothing_relevant_is_no_failure(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = None
    manager = start(open_manager(provider))
    result = manager.prefetch_all(Query("tea"), A)
    assert (part(result).origin, part(result).state, result.contexts) == ("none", "active", [])


def test_a_provider_cannot_flood_the_turn(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.results["prefetch"] = "x" * 1_000_000
    manager = start(open_manager(provider))
    assert len(text(manager.prefetch_all(Query("tea", budget=100), A))) == 400


@pytest.mark.parametrize(("budget", "kept"), [(100, ["aaaa", "bbbb"]), (1, ["aaaa"]), (0, [])])
def test_the_best_items_are_kept_within_the_budget(budget: int, kept: list[str]) -> None:
    recall = Recall((RecallItem("aaaa"), RecallItem("bbbb")))
    assert [item.text for item in cut_to_budget(recall, budget).items] == kept


def test_a_first_item_that_is_too_long_is_cut() -> None:
    assert cut_to_budget(Recall((RecallItem("a" * 10), RecallItem("b"))), 1).items == (RecallItem("aaaa"),)


def test_a_turn_start_that_is_waited_for_waits_for_no_recall(hermes_home: HermesHome) -> None:
    manager, provider, session = MemoryManager(hermes_home), RecordingProvider(), make_session()
    manager.add_provider(provider)
    manager.initialize_all(session)
    asked = {"turn_number": 1, "message": "hello", "session": session, "author": ""}
    assert manager.ask("fake", "on_turn_start", **asked).ok
    manager.shutdown_all()


def test_a_recall_that_hangs_where_nobody_waits_for_it_keeps_the_breaker_from_nothing(
    open_manager: OpenManager, clock: Clock
) -> None:
    provider = RecordingProvider()
    manager = start(open_manager(provider))
    provider.results["prefetch"] = OSError("down")
    manager.prefetch_all(Query("tea?"), A)
    for _ in range(MAX_FAILURES - 1):
        manager.queue_prefetch_all(Query("tea?"), A)
        assert until(manager.prefetch._probes["fake"].future.done)
    assert until(lambda: manager.health()[0].breakers["read"] == "open")
    hangs = provider.gates["prefetch"] = threading.Event()
    clock.advance(COOLDOWN_S)
    manager.queue_prefetch_all(Query("tea?"), A)  # the probe
    assert provider.wait_for("prefetch", MAX_FAILURES + 1)
    clock.advance(COOLDOWN_S)
    assert manager.handle_tool_call(ToolCall("fake_remember", {}), A) == '{"ok": true}'
    assert manager.health()[0].breakers["read"] == "closed"
    hangs.set()


class Busy(RecordingProvider):
    """Takes 0.3 s for each recall, and counts the recalls that run at once, in all and of one session."""

    capabilities = Capabilities(concurrent=8)

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()
        self.running: list[str] = []
        self.most = self.most_of_one = 0

    def prefetch(self, query: Query, session: Session) -> Recall:
        with self.lock:
            self.running.append(session.id)
            self.most = max(self.most, len(self.running))
            self.most_of_one = max(self.most_of_one, self.running.count(session.id))
        time.sleep(0.3)
        with self.lock:
            self.running.remove(session.id)
        return Recall((RecallItem(f"{session.id}: {query.text}"),))


def ask_at_once(manager: MemoryManager, sessions: list[Session]) -> dict[str, RecallPart]:
    """Ask in all sessions at the same time. Return the recall by the id of the session."""
    parts: dict[str, RecallPart] = {}

    def ask(session: Session) -> None:
        parts[session.id] = part(manager.prefetch_all(Query("tea"), session, turn_number=1))

    threads = [threading.Thread(target=ask, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return parts


def test_forty_sessions_all_get_their_recall_of_a_provider_that_reads_for_several_at_once(
    open_manager: OpenManager,
) -> None:
    provider = Busy()
    manager = start(open_manager(provider, clock=time.monotonic, deadlines={"prefetch": 60.0}))
    sessions = [make_session(f"s{number}") for number in range(40)]
    parts = ask_at_once(manager, sessions)
    assert {name: (each.origin, each.recall.render()) for name, each in parts.items()} == {
        session.id: ("fresh", f"- {session.id}: tea") for session in sessions
    }
    assert provider.most == 8
    assert provider.most_of_one == 1


@pytest.mark.parametrize("capabilities", [Capabilities(), Capabilities(serial=True, concurrent=8)])
def test_a_provider_that_does_not_say_so_reads_for_one_session_at_a_time(
    open_manager: OpenManager, capabilities: Capabilities
) -> None:
    provider = Busy()
    provider.capabilities = capabilities
    manager = start(open_manager(provider, clock=time.monotonic))
    parts = ask_at_once(manager, [make_session(f"s{number}") for number in range(4)])
    assert {each.origin for each in parts.values()} == {"fresh"}
    assert provider.most == 1


@pytest.mark.parametrize("concurrent", [1, 4])
def test_a_slow_preparation_runs_beside_recall_and_tools_of_its_session(
    open_manager: OpenManager, concurrent: int
) -> None:
    provider = RecordingProvider()
    provider.capabilities = Capabilities(slow_prefetch=True, concurrent=concurrent)
    gate = provider.gates["queue_prefetch"] = threading.Event()
    manager = start(open_manager(provider))
    manager.queue_prefetch_all(Query("slow"), A)
    assert provider.wait_for("queue_prefetch")
    assert part(manager.prefetch_all(Query("tea"), A)).origin == "fresh"
    assert manager.handle_tool_call(ToolCall("fake_remember", {}), A) == '{"ok": true}'
    manager.queue_prefetch_all(Query("slower"), A)
    assert part(manager.prefetch_all(Query("tea"), A)).origin == "fresh"
    assert len(provider.of("queue_prefetch")) == 1
    gate.set()
    assert provider.wait_for("queue_prefetch", 2)


def test_a_preparation_of_a_provider_that_does_not_say_so_is_slow_keeps_recall_waiting(
    open_manager: OpenManager,
) -> None:
    provider = RecordingProvider()
    gate = provider.gates["queue_prefetch"] = threading.Event()
    manager = start(open_manager(provider, deadlines={"prefetch": 0.2}))
    manager.queue_prefetch_all(Query("slow"), A)
    assert provider.wait_for("queue_prefetch")
    assert "in line behind queue_prefetch" in part(manager.prefetch_all(Query("tea"), A)).reason
    gate.set()


def test_a_slow_preparation_ends_before_shutdown(open_manager: OpenManager) -> None:
    provider = RecordingProvider()
    provider.capabilities = Capabilities(slow_prefetch=True)
    gate = provider.gates["queue_prefetch"] = threading.Event()
    manager = start(open_manager(provider))
    manager.queue_prefetch_all(Query("slow"), A)
    assert provider.wait_for("queue_prefetch")
    manager.queue_prefetch_all(Query("never begun"), A)
    manager.shutdown_all(0.4)
    assert "shutdown" not in provider.hooks
    gate.set()
    assert until(lambda: provider.hooks[-1] == "shutdown")
    assert [call["query"].text for call in provider.of("queue_prefetch")] == ["slow"]
