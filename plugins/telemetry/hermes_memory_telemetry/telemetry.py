"""Telemetry: spans and metrics of a memory by the OpenTelemetry conventions for generative AI.

It is imported only if telemetry is on, by `telemetry.enabled` of config.yaml or by
`open_memory(telemetry=...)`. The host configures the OpenTelemetry SDK, which decides where spans and metrics go.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from importlib import metadata
from types import TracebackType
from typing import Any, ClassVar, TypeVar, cast

from opentelemetry import context as otel_context
from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from hermes_core import MemoryManager, TurnRecall
from hermes_core.contract.hooks import hookimpl
from hermes_core.contract.values import Event, MemoryWrite, Recall, Session, SessionSwitch, Turn
from hermes_core.manager.call import attempt
from hermes_core.manager.manager import ProviderHealth
from hermes_core.outbox.rows import DELIVERED_ROW, TRACE_CONTEXT, Row
from hermes_core.recall.tokens import count_tokens
from hermes_core.safety.redact import redact_value
from hermes_core.turn_recall import BegunTurn, RecallReport

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Attributes = dict[str, Any]

SCOPE = "hermes_core"
"""Name of the instrumentation, by which OpenTelemetry can filter its spans."""

VERSION = metadata.version("hermes-memory-telemetry")
"""Version of the instrumentation."""

SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""Schema of the names of spans, metrics and attributes: the conventions for generative AI with memory operations."""

# The names of the conventions for generative AI. The package opentelemetry-semantic-conventions has none for memory.
# Environment variable of OpenTelemetry: `true` if spans may hold the text of questions, recall and turns.
CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

OPERATION = "gen_ai.operation.name"
STORE_ID = "gen_ai.memory.store.id"
RECORD_ID = "gen_ai.memory.record.id"
RECORD_COUNT = "gen_ai.memory.record.count"
RECORDS = "gen_ai.memory.records"
QUERY_TEXT = "gen_ai.memory.query.text"
PROVIDER = "gen_ai.provider.name"
CONVERSATION_ID = "gen_ai.conversation.id"
TOOL_NAME = "gen_ai.tool.name"
ERROR_TYPE = "error.type"

SEARCH, CREATE, UPDATE = "search_memory", "create_memory", "update_memory"
UPSERT, DELETE, EXECUTE_TOOL = "upsert_memory", "delete_memory", "execute_tool"

# Names of our own, where the conventions have none.
HOOK = "hermes.hook"
ATTEMPT = "hermes.outbox.attempt"
RECALL_STATE = "hermes.recall.state"
RECALL_TOKENS = "hermes.recall.tokens"

DURATION_BUCKETS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKEN_BUCKETS = (0, 50, 100, 200, 400, 800, 1600, 3200, 6400)

BREAKER_STATES = {"closed": 0, "half-open": 1, "open": 2}

# Results of a recall that are a failure of the provider. "skipped" follows from an earlier failure.
FAILED_RECALL = ("late", "failed", "open")

OPERATIONS_OF_WRITES = {"add": CREATE, "replace": UPDATE, "remove": DELETE}
"""Operation by the action of the `memory` tool."""

# Only these headers: baggage may hold what the host knows of the user, and the row is a file on disk.
_PROPAGATOR = TraceContextTextMapPropagator()


class Telemetry:
    """Settings of telemetry, to pass to `open_memory(telemetry=...)`. Several memories may share one object.

    Args:
        tracer_provider: Makes the spans; default: the global provider of OpenTelemetry.
        meter_provider: Makes the metrics; default: the global provider of OpenTelemetry.
        content: True to put the text of questions, recall and turns into spans; default: as the environment variable
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says, else False.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool | None = None,
    ) -> None:
        self.tracer = trace.get_tracer(SCOPE, VERSION, tracer_provider=tracer_provider, schema_url=SCHEMA_URL)
        self.instruments = _Instruments.of(meter_provider)
        self.content = _captures_content() if content is None else content

    def tracer_of(self, store_id: str, provider: Callable[[], str]) -> MemoryTracer:
        """Return the tracer of a memory; see `MemoryTracer`."""
        return MemoryTracer(self, store_id, provider)


class MemoryTracer:
    """Spans and metrics of one memory.

    Attributes:
        observers: The observers that the manager of the memory needs for this.

    Args:
        telemetry: The settings.
        store_id: Value of `gen_ai.memory.store.id`: the name of the profile, never the id of a user.
        provider: Returns the name of the external provider; "" for none.
    """

    def __init__(self, telemetry: Telemetry, store_id: str, provider: Callable[[], str]) -> None:
        self._telemetry = telemetry
        self._store_id = store_id
        self._provider = provider
        self._manager: MemoryManager | None = None
        self.observers = (_ProviderSpans(self),)
        self._traces: Mapping[str, Callable[[partial[Any], Mapping[str, Any]], Any]] = {
            "ask": self._ask_recall,
            "collect": self._collect_recall,
            "report": self._report,
            "end_turn": self._end_turn,
            "call_tool": self._call_tool,
            "rewind": self._rewind,
            "delete_session": self._delete_session,
            "on_memory_write": self._store,
            "on_delegation": self._store,
            "on_session_end": self._store,
            "on_session_switch": self._store,
        }

    def watch(self, manager: MemoryManager) -> None:
        """Report the outbox and the breakers of `manager` as gauges, until it is shut down."""
        self._manager = manager
        self._telemetry.instruments.tracers.add(self)

    def trace(self, method: str, call: partial[Result]) -> Result:
        """Run `call`, a call of the method of this name of `Memory` or its manager, and return its result."""
        arguments = inspect.signature(call.func).bind(*call.args, **call.keywords).arguments
        return cast(Result, self._traces[method](call, arguments))

    def start(
        self,
        operation: str,
        session: Session | None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] = (),
        root: bool = False,
    ) -> OperationSpan:
        """Start the span of an operation. Use it in a `with` block, which makes it the current one.

        Args:
            operation: Name of the operation, which is the name of the span.
            session: The session; None if the operation belongs to none.
            root: True for a span in a trace of its own.
        """
        common: Attributes = {STORE_ID: self._store_id}
        if not operation.startswith("hermes."):
            common[OPERATION] = operation.partition(" ")[0]
        if isinstance(session, Session):  # else the method raises
            common[CONVERSATION_ID] = session.id
        if kind is SpanKind.CLIENT:
            common[PROVIDER] = self._provider()
        return OperationSpan(self._telemetry, operation, kind, {**common, **(attributes or {})}, links, root)

    def count(self, event: Event) -> None:
        """Count an event of the manager."""
        instruments, data = self._telemetry.instruments, event.data
        common = {STORE_ID: self._store_id, PROVIDER: str(data.get("provider", ""))}
        if event.kind == "provider.call":
            hook, status = str(data.get("hook", "")), str(data.get("status", ""))
            instruments.failures.add(1, {**common, HOOK: hook, ERROR_TYPE: status})
        elif event.kind == "outbox.refused":
            instruments.refused.add(1, {**common, HOOK: str(data.get("hook", ""))})

    def health(self) -> list[tuple[Attributes, ProviderHealth]]:
        """Return the health of the external providers, each with its attributes; [] once the memory is closed."""
        manager = self._manager
        if manager is None or manager.closed or manager.forked:
            return []
        return [
            ({STORE_ID: self._store_id, PROVIDER: health.name}, health)
            for health in manager.health()
            if health.name == self._provider()
        ]

    # ------------------------------------- methods of the memory and its manager

    def _ask_recall(self, call: partial[BegunTurn], arguments: Mapping[str, Any]) -> BegunTurn:
        span = self.start(SEARCH, arguments["session"])
        span.ends_on_exit = False  # it ends with the recall
        with span:
            pending = call()
            if self._telemetry.content:
                span.set({QUERY_TEXT: redact_value(pending.query.text)})
        pending.span = span
        return pending

    def _collect_recall(self, call: partial[TurnRecall], arguments: Mapping[str, Any]) -> TurnRecall:
        span = arguments["pending"].span
        if not isinstance(span, OperationSpan):
            return call()
        span.ends_on_exit = True
        with span:
            recall = call()
            parts = recall.recall.parts
            records = [record for part in parts for record in _records(part.provider, part.recall)]
            known = {part.provider for part in parts}
            records += [_record(text, label) for label, text in recall.contexts if label not in known]
            self._note_records(span, records)
            span.set({RECALL_STATE: [f"{part.provider}: {part.outcome}" for part in parts]})
            span.error_type = next((part.status for part in parts if part.status in FAILED_RECALL), "")
            tokens = sum(count_tokens(text) for _, text in recall.contexts)
            span.set({RECALL_TOKENS: tokens})
            self._telemetry.instruments.tokens.record(tokens, {STORE_ID: self._store_id})
        return recall

    def _report(self, call: partial[RecallReport], arguments: Mapping[str, Any]) -> RecallReport:
        span = arguments["pending"].span
        if not isinstance(span, OperationSpan):
            return call()
        span.ends_on_exit = True
        with span:
            report = call()
            self._note_records(span, [_record(hit.text, hit.source) for hit in report.results])
            span.set({RECALL_TOKENS: report.tokens})
        return report

    def _end_turn(self, call: partial[Turn], arguments: Mapping[str, Any]) -> Turn:
        with self.start(UPSERT, arguments["session"]) as span:
            turn = call()
            span.set({RECORD_ID: turn.id})
            if self._telemetry.content:
                records = [_record(turn.user, "user"), _record(turn.assistant, "assistant")]
                span.set({RECORDS: _as_json(records)})
        return turn

    def _call_tool(self, call: partial[str], arguments: Mapping[str, Any]) -> str:
        name, values = str(arguments["name"]), arguments["arguments"]
        operation = f"{EXECUTE_TOOL} {name}"
        attributes: Attributes = {TOOL_NAME: name}
        if name == "session_search":
            operation = SEARCH
        elif name == "memory":
            actions = _actions(values)
            kinds = {OPERATIONS_OF_WRITES.get(action, UPDATE) for action in actions}
            operation = kinds.pop() if len(kinds) == 1 else UPDATE
            attributes[RECORD_COUNT] = len(actions)
        with self.start(operation, arguments["session"], attributes=attributes) as span:
            text = call()
            answer = _as_mapping(text)
            if answer.get("success") is False or answer.get("error"):
                span.error_type = "tool_error"
            elif operation == SEARCH:
                results = answer.get("results")
                span.set({RECORD_COUNT: len(results) if isinstance(results, list) else 0})
                if self._telemetry.content:
                    span.set({QUERY_TEXT: redact_value(str(_as_mapping(values).get("query", "")))})
        return text

    def _rewind(self, call: partial[list[str]], arguments: Mapping[str, Any]) -> list[str]:
        with self.start(DELETE, arguments["session"]) as span:
            turns = call()
            span.set({RECORD_COUNT: len(turns)})
        return turns

    def _delete_session(self, call: partial[None], arguments: Mapping[str, Any]) -> None:
        attributes = {CONVERSATION_ID: str(arguments["session_id"])}
        with self.start(DELETE, None, attributes=attributes):
            call()

    def _store(self, call: partial[Result], arguments: Mapping[str, Any]) -> Result:
        """Make a span of a method of the manager that stores a row, unless a method of `Memory` has called it."""
        if TRACE_CONTEXT.get():
            return call()
        session, operation = arguments.get("session"), UPSERT
        if "write" in arguments:
            operation = OPERATIONS_OF_WRITES[arguments["write"].action]
        elif "reason" in arguments:
            operation = "hermes.session_commit" if arguments["reason"] == "cadence" else "hermes.session_end"
        elif "switch" in arguments:
            session, operation = arguments["switch"].new, "hermes.session_switch"
        with self.start(operation, session):
            return call()

    def _note_records(self, span: OperationSpan, records: Sequence[Mapping[str, Any]]) -> None:
        span.set({RECORD_COUNT: len(records)})
        if self._telemetry.content and records:
            span.set({RECORDS: _as_json(records)})


class OperationSpan:
    """The span of an operation, and its duration for the metrics.

    What OpenTelemetry or an exporter raises is logged and does not reach the caller.

    Attributes:
        ends_on_exit: True to end the span at the end of the `with` block. An error ends it in any case.
        error_type: Value of `error.type` if the operation failed without an exception; "" if it did not.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        links: Sequence[Link],
        root: bool,
    ) -> None:
        self.ends_on_exit = True
        self.error_type = ""
        self._duration = telemetry.instruments.duration
        self._attributes = attributes
        self._context = Context() if root else None
        self._token: Any = None
        self._header_token: Any = None
        self._open = True
        self._began = time.perf_counter()
        start = partial(
            telemetry.tracer.start_span,
            name,
            context=self._context,
            kind=kind,
            attributes=attributes,
            links=links,
        )
        self._span: Span = _call_safely(start) or trace.INVALID_SPAN

    def __enter__(self) -> OperationSpan:
        self._token = otel_context.attach(trace.set_span_in_context(self._span, self._context))
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers)
        self._header_token = TRACE_CONTEXT.set(headers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        TRACE_CONTEXT.reset(self._header_token)
        otel_context.detach(self._token)
        if kind is not None:
            self.end(kind.__name__)
        elif self.ends_on_exit:
            self.end(self.error_type)

    def set(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes of the span."""
        _call_safely(partial(self._span.set_attributes, attributes))

    def end(self, error_type: str = "") -> None:
        """End the span, and record the duration of the operation. A second call does nothing.

        Args:
            error_type: Kind of the failure; "" if the operation succeeded. The message is left out, because it may
                quote what was said.
        """
        if not self._open:
            return
        self._open = False
        if error_type:
            self.set({ERROR_TYPE: error_type})
            _call_safely(partial(self._span.set_status, Status(StatusCode.ERROR)))
        _call_safely(self._span.end)
        if OPERATION not in self._attributes:
            return
        labels = {key: self._attributes[key] for key in (OPERATION, PROVIDER) if key in self._attributes}
        if error_type:
            labels[ERROR_TYPE] = error_type
        _call_safely(partial(self._duration.record, time.perf_counter() - self._began, labels))


class _ProviderSpans:
    """Observer that opens a span around each call of a provider that recalls or takes a write."""

    def __init__(self, tracer: MemoryTracer) -> None:
        self._tracer = tracer

    @hookimpl(wrapper=True)
    def prefetch(self, session: Session) -> Generator[None, Recall, Recall]:
        return (yield from self._recall("prefetch", session))

    @hookimpl(wrapper=True)
    def queue_prefetch(self, session: Session) -> Generator[None, Recall, Recall]:
        return (yield from self._recall("queue_prefetch", session))

    @hookimpl(wrapper=True)
    def sync_turn(self, turn: Turn, session: Session) -> Generator[None, None, None]:
        yield from self._delivery("sync_turn", UPSERT, session, turn.id)

    @hookimpl(wrapper=True)
    def on_memory_write(self, write: MemoryWrite, session: Session) -> Generator[None, None, None]:
        yield from self._delivery("on_memory_write", OPERATIONS_OF_WRITES[write.action], session, write.id)

    @hookimpl(wrapper=True)
    def on_delegation(self, session: Session) -> Generator[None, None, None]:
        yield from self._delivery("on_delegation", UPSERT, session)

    @hookimpl(wrapper=True)
    def on_session_end(self, session: Session) -> Generator[None, None, None]:
        yield from self._delivery("on_session_end", UPSERT, session)

    @hookimpl(wrapper=True)
    def on_session_switch(self, switch: SessionSwitch) -> Generator[None, None, None]:
        operation = DELETE if switch.rewound_turns else "hermes.session_switch"
        yield from self._delivery("on_session_switch", operation, switch.new)

    @hookimpl
    def on_event(self, event: Event) -> None:
        self._tracer.count(event)

    def _recall(self, hook: str, session: Session) -> Generator[None, Recall, Recall]:
        with self._tracer.start(SEARCH, session, kind=SpanKind.CLIENT, attributes={HOOK: hook}) as span:
            recall = yield
            if recall is not None:
                # Without the text, also on opt-in: an observer may still refuse it.
                span.set({RECORD_COUNT: len(recall.items) or int(bool(recall))})
            return recall

    def _delivery(
        self, hook: str, operation: str, session: Session, record_id: str = ""
    ) -> Generator[None, None, None]:
        attributes: Attributes = {HOOK: hook}
        if record_id:
            attributes[RECORD_ID] = record_id
        links = []
        row = DELIVERED_ROW.get()
        if row is not None:
            attributes[ATTEMPT] = row.attempts + 1
            source = trace.get_current_span(_PROPAGATOR.extract(_trace_of(row), Context()))
            if source.get_span_context().is_valid:
                links.append(Link(source.get_span_context()))
        with self._tracer.start(
            operation, session, kind=SpanKind.CLIENT, attributes=attributes, links=links, root=True
        ):
            yield


class _Instruments:
    """The instruments of one provider of metrics, and the tracers that they report on."""

    _GLOBAL: ClassVar[_Instruments | None] = None
    _BY_PROVIDER: ClassVar[weakref.WeakKeyDictionary[MeterProvider, _Instruments]] = (
        weakref.WeakKeyDictionary()
    )
    # Two memories may be opened at once.
    _LOCK: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def of(cls, provider: MeterProvider | None) -> _Instruments:
        """Return the instruments of a provider; None is the global one. A second set would report nothing."""
        with cls._LOCK:
            if provider is None:
                cls._GLOBAL = cls._GLOBAL or cls(metrics.get_meter(SCOPE, VERSION, schema_url=SCHEMA_URL))
                return cls._GLOBAL
            if provider not in cls._BY_PROVIDER:
                cls._BY_PROVIDER[provider] = cls(provider.get_meter(SCOPE, VERSION, schema_url=SCHEMA_URL))
            return cls._BY_PROVIDER[provider]

    def __init__(self, meter: metrics.Meter) -> None:
        self.tracers: weakref.WeakSet[MemoryTracer] = weakref.WeakSet()
        self.duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Duration of operations of memory.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S,
        )
        self.tokens = meter.create_histogram(
            RECALL_TOKENS,
            unit="{token}",
            description="Tokens that recall added to a turn.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self.failures = meter.create_counter(
            "hermes.provider.call.failures",
            unit="{call}",
            description="Calls of a provider that failed or were late.",
        )
        self.refused = meter.create_counter(
            "hermes.outbox.refused", unit="{row}", description="Writes that the outbox did not accept."
        )
        for name, unit, description, read in _GAUGES:
            meter.create_observable_gauge(name, [partial(self._observe, read)], unit, description)

    def _observe(
        self, read: Callable[[ProviderHealth], Iterable[tuple[float, Attributes]]], _: CallbackOptions
    ) -> Iterable[Observation]:
        for tracer in list(self.tracers):
            for common, health in _call_safely(tracer.health) or ():
                for value, attributes in read(health):
                    yield Observation(value, {**common, **attributes})


def _trace_of(row: Row) -> dict[str, str]:
    """Return the trace headers of the operation that stored the row; {} if telemetry was off."""
    with contextlib.suppress(ValueError, TypeError, LookupError):
        return {str(key): str(value) for key, value in json.loads(row.body)["trace"].items()}
    return {}


def _breakers(health: ProviderHealth) -> Iterable[tuple[float, Attributes]]:
    for kind, state in health.breakers.items():
        yield BREAKER_STATES.get(state, 0), {"hermes.provider.breaker": kind}


_GAUGES: tuple[tuple[str, str, str, Callable[[ProviderHealth], Iterable[tuple[float, Attributes]]]], ...] = (
    (
        "hermes.outbox.depth",
        "{row}",
        "Writes that wait for the provider.",
        lambda health: [(health.depth, {})],
    ),
    (
        "hermes.outbox.oldest_age",
        "s",
        "Age of the oldest write that waits for the provider; 0 if none waits.",
        lambda health: [(health.oldest_age or 0.0, {})],
    ),
    (
        "hermes.outbox.dead_letters",
        "{row}",
        "Writes that are given up until a person retries them.",
        lambda health: [(health.dead_letters, {})],
    ),
    (
        "hermes.provider.breaker.state",
        "1",
        "Breaker of the provider: 0 closed, 1 half-open, 2 open.",
        _breakers,
    ),
)
"""Name, unit, description, and the values by attributes, of each gauge."""


def _call_safely(function: Callable[[], Result]) -> Result | None:
    """Call a function of OpenTelemetry or of an exporter. If it raises, log that and return None."""
    value, error = attempt(function)
    if error is not None:
        log.warning("telemetry raised %r", error)
    return value


def _captures_content() -> bool:
    value = os.environ.get(CAPTURE_CONTENT, "").strip().lower()
    return value in ("true", "1", "span_only", "span_and_event")


def _records(provider: str, recall: Recall) -> list[Attributes]:
    """Return the records of a recall in the form of the conventions."""
    if recall.text.strip():
        return [_record(recall.text, provider)]
    return [_record(item.text, provider, item.id, item.score) for item in recall.items]


def _record(content: str, source: str, id_: str = "", score: float | None = None) -> Attributes:
    ids = {"id": id_} if id_ else {}
    scores = {} if score is None else {"score": score}
    return {"content": content, **ids, **scores, "metadata": {"source": source}}


def _as_json(records: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps(redact_value(list(records)), ensure_ascii=False)


def _actions(arguments: object) -> list[str]:
    """Return the actions of a call of the `memory` tool."""
    values = _as_mapping(arguments)
    operations = values.get("operations")
    items = operations if isinstance(operations, list) and operations else [values]
    return [str(item.get("action", "")) for item in items if isinstance(item, Mapping)]


def _as_mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object, given as text perhaps; {} for anything else."""
    if isinstance(value, str):
        value, _ = attempt(json.loads, value)
    return value if isinstance(value, Mapping) else {}
