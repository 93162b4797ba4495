"""Spans and metrics of a memory, as the OpenTelemetry SDK exports them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from hermes_core import (
    AsyncMemory,
    Delegation,
    Memory,
    MemoryProvider,
    Query,
    Recall,
    RecallItem,
    SessionSwitch,
    Turn,
    hookimpl,
    open_memory,
)
from hermes_core.contract.values import Refused
from hermes_core.errors import BackendUnavailable, SessionError
from hermes_memory_agent import Agent, ModelSettings, OpenAIModel
from hermes_memory_telemetry.telemetry import SCHEMA_URL, Telemetry
from hermes_memory_testing.model_server import ModelServer, Reply
from tests.manager.conftest import until

SECRET = "the tea is Lapsang"


class Backend(MemoryProvider):
    """A provider that recalls all turns it got, and makes a span of its own for each request."""

    name = "backend"

    def __init__(self, tracer: Any = None) -> None:
        self.turns: list[Turn] = []
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self._tracer = tracer or trace.get_tracer("backend")

    def prefetch(self, query: Query) -> Recall:
        self.begun.set()
        self.gate.wait(10)
        with self._tracer.start_as_current_span("GET /recall"):
            if self.error is not None:
                raise self.error
            return Recall(tuple(RecallItem(turn.user) for turn in self.turns))

    def sync_turn(self, turn: Turn) -> None:
        with self._tracer.start_as_current_span("POST /turns"):
            if self.error is not None:
                raise self.error
            self.turns.append(turn)


@dataclass
class Exported:
    """A tracer and a meter whose exports are kept in memory."""

    spans: InMemorySpanExporter
    reader: InMemoryMetricReader
    tracers: TracerProvider
    meters: MeterProvider

    def telemetry(self, *, content: bool | None = None) -> Telemetry:
        return Telemetry(tracer_provider=self.tracers, meter_provider=self.meters, content=content)

    def named(self, name: str, kind: SpanKind | None = None) -> list[ReadableSpan]:
        return [
            span
            for span in self.spans.get_finished_spans()
            if span.name == name and kind in (None, span.kind)
        ]

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        data = self.reader.get_metrics_data()
        metrics = [
            metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return [
            (dict(point.attributes), getattr(point, "value", getattr(point, "count", None)))
            for metric in metrics
            for point in metric.data.data_points
        ]


@pytest.fixture
def exported() -> Iterator[Exported]:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    yield Exported(spans, reader, tracers, meters)
    tracers.shutdown()
    meters.shutdown()


@pytest.fixture
def backend(exported: Exported) -> Backend:
    return Backend(exported.tracers.get_tracer("backend"))


@pytest.fixture
def memory(tmp_path: Path, exported: Exported, backend: Backend) -> Iterator[Memory]:
    with open_memory(tmp_path, provider=backend, telemetry=exported.telemetry()) as opened:
        yield opened


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def run(code: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, str(home)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------- on and off

OFF = """
import sys
from hermes_core import open_memory
with open_memory(sys.argv[1]) as memory:
    memory.conversation("a").turn("hello").finish("hi")
    assert memory.problems() == []
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""

WITHOUT_OPENTELEMETRY = """
import sys
sys.modules["opentelemetry"] = None
from hermes_core import open_memory
with open_memory(sys.argv[1], config={"telemetry": {"enabled": True}}) as memory:
    memory.conversation("a").turn("hello").finish("hi")
    print(memory.problems())
"""


def test_telemetry_is_off_and_not_imported_unless_it_is_switched_on(tmp_path: Path) -> None:
    assert run(OFF, tmp_path) == "[]\n"


def test_a_missing_opentelemetry_is_a_problem_with_its_remedy(tmp_path: Path) -> None:
    output = run(WITHOUT_OPENTELEMETRY, tmp_path)
    assert "plugins/telemetry" in output
    assert "opentelemetry" in output
    assert "telemetry.enabled" in output


def test_the_config_switches_it_on_and_the_code_comes_first(tmp_path: Path) -> None:
    on = {"telemetry": {"enabled": True}}
    with open_memory(tmp_path, config=on) as memory:
        assert memory._tracer is not None
        assert memory.problems() == []
    with open_memory(tmp_path, config=on, telemetry=False) as memory:
        assert memory._tracer is None
    with open_memory(tmp_path, telemetry=True) as memory:
        assert memory._tracer is not None


# ------------------------------------------------------------------------ spans


def test_the_spans_of_a_turn_have_the_names_and_attributes_of_the_conventions(
    memory: Memory, exported: Exported, backend: Backend
) -> None:
    memory.conversation("c1").turn("My cat is called Momo.").finish("Noted.")
    assert memory.flush()
    # A past session that says the same as the backend would not count.
    backend.turns[:] = [dataclasses.replace(told, user="Momo sleeps in a box.") for told in backend.turns]
    turn = memory.conversation("c2").turn("What is my cat called?")
    stored = turn.finish("Lapsang.")
    assert memory.flush()

    inner, outer = exported.named("search_memory")[-2:]
    assert (outer.kind, inner.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT)
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert attributes(outer) == {
        "gen_ai.operation.name": "search_memory",
        "gen_ai.memory.store.id": "default",
        "gen_ai.conversation.id": "c2",
        "gen_ai.memory.record.count": 2,  # of the backend, and of the session before
        "hermes.recall.state": ("backend: fresh",),
        "hermes.recall.tokens": attributes(outer)["hermes.recall.tokens"],
    }
    assert attributes(outer)["hermes.recall.tokens"] > 0
    assert attributes(inner)["gen_ai.provider.name"] == "backend"
    assert attributes(inner)["hermes.hook"] == "prefetch"

    (upsert,) = exported.named("upsert_memory", SpanKind.INTERNAL)[-1:]
    assert attributes(upsert)["gen_ai.memory.record.id"] == stored.id
    # What the provider sends stands below the span of its hook.
    request = exported.named("GET /recall")[-1]
    assert request.parent is not None
    assert request.parent.span_id == inner.context.span_id


def test_spans_and_metrics_name_the_version_and_the_schema(memory: Memory, exported: Exported) -> None:
    memory.conversation().turn("Hello").finish("Hi.")
    data: Any = exported.reader.get_metrics_data()
    scopes = [span.instrumentation_scope for span in exported.spans.get_finished_spans()]
    scopes += [metrics.scope for resource in data.resource_metrics for metrics in resource.scope_metrics]
    own = {(scope.version, scope.schema_url) for scope in scopes if scope and scope.name == "hermes_core"}
    assert own == {(version("hermes-memory-telemetry"), SCHEMA_URL)}
    assert SCHEMA_URL.startswith("https://opentelemetry.io/schemas/")


def test_the_spans_stand_below_the_span_of_the_host(memory: Memory, exported: Exported) -> None:
    with exported.tracers.get_tracer("host").start_as_current_span("invoke_agent") as root:
        memory.conversation("c1").turn("Hello").finish("Hi.")
    ours = [exported.named(name, SpanKind.INTERNAL)[0] for name in ("search_memory", "upsert_memory")]
    assert [span.parent and span.parent.span_id for span in ours] == [root.get_span_context().span_id] * 2


@pytest.mark.parametrize(
    ("arguments", "operation", "count"),
    [
        ({"action": "add", "target": "user", "content": "Drinks tea."}, "create_memory", 1),
        ({"action": "replace", "target": "user", "old_text": "Old", "content": "New."}, "update_memory", 1),
        ({"action": "remove", "target": "user", "old_text": "Old"}, "delete_memory", 1),
        (
            {
                "target": "user",
                "operations": [{"action": "add", "content": "a"}, {"action": "remove", "old_text": "Old"}],
            },
            "update_memory",
            2,
        ),
        (json.dumps({"action": "add", "content": "As text."}), "create_memory", 1),
    ],
)
def test_a_change_of_the_notes_is_the_operation_of_its_action(
    memory: Memory, exported: Exported, arguments: Any, operation: str, count: int
) -> None:
    chat = memory.conversation("c1")
    chat.change_memory("add", "user", "Old")
    exported.spans.clear()
    assert chat.call_tool("memory", arguments).ok
    (span,) = exported.named(operation, SpanKind.INTERNAL)
    assert attributes(span)["gen_ai.tool.name"] == "memory"
    assert attributes(span)["gen_ai.memory.record.count"] == count
    assert span.status.status_code is StatusCode.UNSET


def test_a_tool_that_fails_is_an_error(memory: Memory, exported: Exported) -> None:
    chat = memory.conversation("c1")
    assert not chat.call_tool("memory", {"action": "remove", "target": "user", "old_text": "nothing"}).ok
    assert not chat.call_tool("no_such_tool", {}).ok
    spans = [*exported.named("delete_memory"), *exported.named("execute_tool no_such_tool")]
    assert [attributes(span)["error.type"] for span in spans] == ["tool_error"] * 2
    assert attributes(spans[-1])["gen_ai.operation.name"] == "execute_tool"


def test_a_search_in_past_sessions_is_a_search(memory: Memory, exported: Exported) -> None:
    memory.conversation("c1").turn(SECRET).finish("Noted.")
    exported.spans.clear()
    assert memory.conversation("c2").call_tool("session_search", {"query": "tea"}).ok
    (span,) = exported.named("search_memory", SpanKind.INTERNAL)
    assert attributes(span)["gen_ai.memory.record.count"] == 1


def test_a_report_an_undo_and_the_end_of_a_session_have_spans(memory: Memory, exported: Exported) -> None:
    chat = memory.conversation("c1")
    chat.turn(SECRET).finish("Noted.")
    chat.turn("And milk.").finish("Noted.")
    exported.spans.clear()
    chat.recall("tea")
    chat.rewind()
    chat.commit()
    chat.end()
    for name in ("search_memory", "delete_memory", "hermes.session_commit", "hermes.session_end"):
        assert len(exported.named(name, SpanKind.INTERNAL)) == 1


def test_a_call_that_raises_is_an_error_by_its_kind(memory: Memory, exported: Exported) -> None:
    with pytest.raises(SessionError):
        memory.end_turn("no session", "a", "b")  # type: ignore[arg-type]
    (span,) = exported.named("upsert_memory")
    assert attributes(span)["error.type"] == "SessionError"


# --------------------------------------------------------------------- failures


def test_a_recall_that_fails_says_so_without_its_message(
    memory: Memory, exported: Exported, backend: Backend
) -> None:
    backend.error = BackendUnavailable(f"refused: {SECRET}")
    memory.conversation("c1").turn("Hello")
    inner, outer = exported.named("search_memory")
    assert attributes(inner)["error.type"] == "BackendUnavailable"
    assert attributes(outer)["error.type"] == "failed"
    assert attributes(outer)["hermes.recall.state"] == ("backend: failed, none",)
    assert {span.status.status_code for span in (inner, outer)} == {StatusCode.ERROR}
    assert not any(SECRET in span.to_json() for span in (inner, outer))


def test_a_late_recall_is_late(tmp_path: Path, exported: Exported, backend: Backend) -> None:
    backend.gate.clear()
    with open_memory(
        tmp_path, provider=backend, deadlines={"prefetch": 2.0}, telemetry=exported.telemetry()
    ) as memory:
        memory.conversation("c1").turn("Hello").finish("Hi.")
        (outer,) = exported.named("search_memory", SpanKind.INTERNAL)
        assert attributes(outer)["error.type"] == "late"
        backend.gate.set()


def test_a_cancelled_recall_ends_its_span(tmp_path: Path, exported: Exported, backend: Backend) -> None:
    backend.gate.clear()

    async def cancel_turn(memory: AsyncMemory) -> None:
        chat = await memory.conversation("c1")
        task = asyncio.create_task(chat.turn("Hello"))
        await asyncio.to_thread(backend.begun.wait, 10)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with open_memory(tmp_path, provider=backend, telemetry=exported.telemetry()) as memory:
        asyncio.run(cancel_turn(AsyncMemory(memory)))
        backend.gate.set()
    (outer,) = exported.named("search_memory", SpanKind.INTERNAL)
    assert attributes(outer)["error.type"] == "cancelled"


class BrokenProcessor(SpanProcessor):
    """A processor with a bug."""

    def on_start(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("no disk")

    def on_end(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("no disk")


def test_an_exporter_that_raises_breaks_no_turn(tmp_path: Path, backend: Backend) -> None:
    tracers = TracerProvider()
    tracers.add_span_processor(BrokenProcessor())
    with open_memory(tmp_path, provider=backend, telemetry=Telemetry(tracer_provider=tracers)) as memory:
        memory.conversation("c1").turn(SECRET).finish("Noted.")
        assert memory.flush()
        turn = memory.conversation("c2").turn("Which tea do I drink?")
        assert SECRET in turn.request_message["content"]
        assert turn.problems == []


# --------------------------------------------------------------------- delivery


def test_a_delivery_has_a_trace_of_its_own_with_a_link_to_the_span_that_stored_the_row(
    memory: Memory, exported: Exported
) -> None:
    stored = memory.conversation("c1").turn("Hello").finish("Hi.")
    assert memory.flush()
    (upsert,) = exported.named("upsert_memory", SpanKind.INTERNAL)
    (delivery,) = exported.named("upsert_memory", SpanKind.CLIENT)
    assert delivery.parent is None
    assert delivery.context.trace_id != upsert.context.trace_id
    assert [link.context.span_id for link in delivery.links] == [upsert.context.span_id]
    assert attributes(delivery) == {
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.memory.store.id": "default",
        "gen_ai.conversation.id": "c1",
        "gen_ai.provider.name": "backend",
        "gen_ai.memory.record.id": stored.id,
        "hermes.hook": "sync_turn",
        "hermes.outbox.attempt": 1,
    }
    (request,) = exported.named("POST /turns")
    assert request.parent is not None
    assert request.parent.span_id == delivery.context.span_id


def test_a_row_that_a_later_process_delivers_keeps_its_link(tmp_path: Path, exported: Exported) -> None:
    failing = Backend()
    failing.error = BackendUnavailable("down")
    with open_memory(tmp_path, provider=failing, telemetry=exported.telemetry()) as memory:
        memory.conversation("c1").turn("Hello").finish("Hi.")
        assert until(lambda: exported.named("upsert_memory", SpanKind.CLIENT))
        (upsert,) = exported.named("upsert_memory", SpanKind.INTERNAL)
    assert (
        attributes(exported.named("upsert_memory", SpanKind.CLIENT)[0])["error.type"] == "BackendUnavailable"
    )
    exported.spans.clear()
    with open_memory(tmp_path, provider=Backend(), telemetry=exported.telemetry()) as memory:
        memory.start_session("c1")
        assert memory.flush()
    (delivery,) = exported.named("upsert_memory", SpanKind.CLIENT)
    assert [link.context.span_id for link in delivery.links] == [upsert.context.span_id]


def test_rows_are_delivered_whether_telemetry_was_on_or_off_when_they_were_stored(
    tmp_path: Path, exported: Exported
) -> None:
    delivered = []
    for before, after in ((exported.telemetry(), False), (False, exported.telemetry())):
        failing, backend = Backend(), Backend()
        failing.error = BackendUnavailable("down")
        home = tmp_path / str(len(delivered))
        with open_memory(home, provider=failing, telemetry=before) as memory:
            memory.conversation("c1").turn("Hello").finish("Hi.")
        with open_memory(home, provider=backend, telemetry=after) as memory:
            memory.start_session("c1")
            assert memory.flush()
        delivered.append([turn.user for turn in backend.turns])
    assert delivered == [["Hello"], ["Hello"]]
    assert exported.named("upsert_memory", SpanKind.CLIENT)[-1].links == ()


def test_the_mirror_of_a_change_of_the_notes_is_linked_too(tmp_path: Path, exported: Exported) -> None:
    class Mirror(MemoryProvider):
        name = "mirror"

        def on_memory_write(self) -> None:
            pass

    with open_memory(tmp_path, provider=Mirror(), telemetry=exported.telemetry()) as memory:
        memory.conversation("c1").change_memory("add", "user", "Drinks tea.")
        assert memory.flush()
    (change,) = exported.named("create_memory", SpanKind.INTERNAL)
    (delivery,) = exported.named("create_memory", SpanKind.CLIENT)
    assert [link.context.span_id for link in delivery.links] == [change.context.span_id]


# ---------------------------------------------------------------------- content


def everything(exported: Exported) -> str:
    return "\n".join(span.to_json() for span in exported.spans.get_finished_spans())


def say_all(memory: Memory) -> None:
    memory.conversation("c1").turn(SECRET).finish("Noted.")
    memory.flush()
    chat = memory.conversation("c2")
    turn = chat.turn("Which tea?")
    turn.call_tool("memory", {"action": "add", "content": SECRET})
    turn.call_tool("session_search", {"query": SECRET})
    turn.finish(SECRET)
    chat.recall(SECRET)
    memory.flush()


def test_no_span_holds_what_was_said(memory: Memory, exported: Exported) -> None:
    say_all(memory)
    assert SECRET not in everything(exported)
    assert "Which tea?" not in everything(exported)


@pytest.mark.parametrize("by", ["code", "config", "environment"])
def test_spans_hold_what_was_said_on_opt_in(
    by: str, tmp_path: Path, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: exported.tracers)
    if by == "environment":
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    telemetry = exported.telemetry(content=True if by == "code" else None) if by != "config" else None
    config = {"telemetry": {"enabled": True, "content": True}} if by == "config" else {}
    with open_memory(tmp_path, provider=Backend(), telemetry=telemetry, config=config) as memory:
        say_all(memory)
    searches = [attributes(span) for span in exported.named("search_memory", SpanKind.INTERNAL)]
    assert "Which tea?" in [search.get("gen_ai.memory.query.text") for search in searches]
    records = [
        json.loads(search["gen_ai.memory.records"])
        for search in searches
        if "gen_ai.memory.records" in search
    ]
    assert {"content": SECRET, "metadata": {"source": "backend"}} in [
        record for group in records for record in group
    ]
    upsert = attributes(exported.named("upsert_memory", SpanKind.INTERNAL)[0])
    assert [record["content"] for record in json.loads(upsert["gen_ai.memory.records"])] == [SECRET, "Noted."]


def test_content_holds_no_key_and_no_recall_that_an_observer_refused(
    tmp_path: Path, exported: Exported
) -> None:
    key = "sk-proj-" + "abcDEF123456" * 4

    class Filter:
        @hookimpl
        def filter_recall(self) -> Refused:
            return Refused("not today")

    with open_memory(
        tmp_path, provider=Backend(), observers=[Filter()], telemetry=exported.telemetry(content=True)
    ) as memory:
        memory.conversation("c1").turn(f"{SECRET}, my key is {key}").finish("Noted.")
        memory.flush()
        exported.spans.clear()
        memory.conversation("c2").turn(f"Is {key} mine?")
    assert key not in everything(exported)
    assert "Lapsang" not in everything(exported)
    assert "mine?" in everything(exported)


# ---------------------------------------------------------------------- metrics


def test_the_gauges_tell_the_state_of_the_outbox_until_the_memory_is_closed(
    tmp_path: Path, exported: Exported
) -> None:
    backend = Backend()
    backend.error = BackendUnavailable("down")
    with open_memory(tmp_path, provider=backend, telemetry=exported.telemetry()) as memory:
        memory.conversation("c1").turn("Hello").finish("Hi.")
        memory.flush(0.5)
        labels = {"gen_ai.memory.store.id": "default", "gen_ai.provider.name": "backend"}
        assert exported.points("hermes.outbox.depth") == [(labels, 1)]
        ((_, age),) = exported.points("hermes.outbox.oldest_age")
        assert age > 0
        assert exported.points("hermes.outbox.dead_letters") == [(labels, 0)]
        breakers = exported.points("hermes.provider.breaker.state")
        assert [point["hermes.provider.breaker"] for point, _ in breakers] == ["read", "write"]
    assert exported.points("hermes.outbox.depth") == []


def test_memories_that_share_a_meter_are_all_measured(tmp_path: Path, exported: Exported) -> None:
    first = open_memory(tmp_path, profile="work", provider=Backend(), telemetry=exported.telemetry())
    second = open_memory(tmp_path, profile="home", provider=Backend(), telemetry=exported.telemetry())
    with first, second:
        stores = {point["gen_ai.memory.store.id"] for point, _ in exported.points("hermes.outbox.depth")}
    assert stores == {"work", "home"}


def test_durations_and_failures_are_counted(memory: Memory, exported: Exported, backend: Backend) -> None:
    backend.error = BackendUnavailable("down")
    memory.conversation("c1").turn("Hello")
    durations = exported.points("gen_ai.client.operation.duration")
    assert ({"gen_ai.operation.name": "search_memory", "error.type": "failed"}, 1) in durations
    memory.close()  # events are delivered by then
    failures = exported.points("hermes.provider.call.failures")
    assert [(point["hermes.hook"], point["error.type"]) for point, _ in failures] == [("prefetch", "failed")]


def test_the_turns_of_the_agent_have_spans_too(memory: Memory, exported: Exported) -> None:
    save = ("memory", {"action": "add", "target": "user", "content": "Lives in Oslo."})
    with ModelServer([Reply(calls=[save]), Reply("Noted.")]) as server:
        model = OpenAIModel(ModelSettings(server.base_url, "scripted"))
        with Agent(memory, model) as agent:
            assert agent.run_turn("I live in Oslo.").outcome == "answered"
        model.close()
    assert memory.flush()
    for name in ("search_memory", "create_memory", "upsert_memory", "hermes.session_end"):
        assert exported.named(name, SpanKind.INTERNAL), name
    (upsert,) = exported.named("upsert_memory", SpanKind.INTERNAL)
    (delivery,) = [
        span
        for span in exported.named("upsert_memory", SpanKind.CLIENT)
        if attributes(span)["hermes.hook"] == "sync_turn"
    ]
    assert [link.context.span_id for link in delivery.links] == [upsert.context.span_id]


def test_the_work_of_a_subagent_and_a_switch_are_linked_too(tmp_path: Path, exported: Exported) -> None:
    class Notified(MemoryProvider):
        name = "notified"

        def on_delegation(self) -> None:
            pass

        def on_session_switch(self) -> None:
            pass

    with open_memory(tmp_path, provider=Notified(), telemetry=exported.telemetry()) as memory:
        old, new = memory.start_session("c1"), memory.start_session("c2")
        memory.manager.on_delegation(Delegation("d1", "Look it up.", "Done."), old)
        memory.manager.on_session_switch(SessionSwitch("s1", old, new, "branch"))
        assert memory.flush()
    for name in ("upsert_memory", "hermes.session_switch"):
        (stored,) = exported.named(name, SpanKind.INTERNAL)
        (delivery,) = exported.named(name, SpanKind.CLIENT)
        assert [link.context.span_id for link in delivery.links] == [stored.context.span_id]
