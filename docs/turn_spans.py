"""Draw the spans of one turn: `python docs/turn_spans.py`. A real turn, as OpenTelemetry's in-memory exporter has it.

The program around the memory makes the spans `invoke_agent` and `chat`, as agent frameworks do. The model and the
backend of the provider are pauses.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, Tracer

from hermes_core import Conversation, MemoryProvider, Recall, RecallItem, open_memory
from hermes_memory_telemetry.telemetry import SCOPE, Telemetry

PICTURE = Path(__file__).resolve().parent / "how-to" / "turn-spans.svg"

BACKEND_S = 0.06
MODEL_S = 0.15

WIDTH, LABEL_WIDTH, NOTE_WIDTH, ROW_HEIGHT, MARGIN = 980, 330, 60, 30, 24
BAR_HEIGHT = 16
HOST_COLOUR, MEMORY_COLOUR, PROVIDER_COLOUR = "#9aa5b1", "#2f6fb2", "#d9822b"
LEGEND = (
    (HOST_COLOUR, "the program"),
    (MEMORY_COLOUR, "the memory (INTERNAL)"),
    (PROVIDER_COLOUR, "the provider (CLIENT)"),
)


class Backend(MemoryProvider):
    """A provider with a backend over the network."""

    name = "backend"

    def prefetch(self) -> Recall:
        """Return one memory."""
        time.sleep(BACKEND_S)
        return Recall((RecallItem("The billing service is deployed from the blue cluster."),))

    def sync_turn(self) -> None:
        """Send the turn."""
        time.sleep(BACKEND_S)


@dataclass(frozen=True)
class Bar:
    """One row of the picture. Times are milliseconds since the begin of the turn."""

    label: str
    depth: int
    colour: str
    begin: float
    end: float
    id: int
    links: tuple[int, ...]


def spans_of_a_turn() -> Sequence[ReadableSpan]:
    """Run one turn, and return its spans."""
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(tracer_provider=tracers, meter_provider=MeterProvider(), content=False)
    with (
        tempfile.TemporaryDirectory(prefix="hermes-spans-") as home,
        open_memory(home, provider=Backend(), telemetry=telemetry) as memory,
    ):
        # The first change and the start of the provider take longer than those of later turns.
        memory.change_memory("add", content="The person likes short answers.")
        memory.start_session("c1")
        exporter.clear()
        _run_turn(memory.conversation("c1"), tracers.get_tracer("program"))
        memory.flush()
    return exporter.get_finished_spans()


def _run_turn(chat: Conversation, tracer: Tracer) -> None:
    with tracer.start_as_current_span("invoke_agent"):
        turn = chat.turn("Where do we deploy the billing service?")
        with tracer.start_as_current_span("chat"):
            time.sleep(MODEL_S)
        turn.call_tool("memory", {"action": "add", "content": "Asks about deployments."})
        with tracer.start_as_current_span("chat"):
            time.sleep(MODEL_S)
        turn.finish("From the blue cluster.")


def bars_of(spans: Sequence[ReadableSpan]) -> list[Bar]:
    """Return the rows of the picture: each span below its parent, in the order of their begin."""
    first = min(span.start_time or 0 for span in spans)
    children: dict[int, list[ReadableSpan]] = {}
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        children.setdefault(span.parent.span_id if span.parent else 0, []).append(span)
    bars: list[Bar] = []

    def add(parent: int, depth: int) -> None:
        for span in children.get(parent, ()):
            context = span.get_span_context()
            ours = span.instrumentation_scope is not None and span.instrumentation_scope.name == SCOPE
            colour = PROVIDER_COLOUR if span.kind is SpanKind.CLIENT else MEMORY_COLOUR
            begin, end = (((moment or 0) - first) / 1e6 for moment in (span.start_time, span.end_time))
            links = tuple(link.context.span_id for link in span.links)
            bars.append(
                Bar(_label(span), depth, colour if ours else HOST_COLOUR, begin, end, context.span_id, links)
            )
            add(context.span_id, depth + 1)

    add(0, 0)
    return bars


def _label(span: ReadableSpan) -> str:
    values = span.attributes or {}
    detail = values.get("hermes.hook") or values.get("gen_ai.tool.name")
    return f"{span.name} · {detail}" if detail else span.name


def picture_of(bars: Sequence[Bar]) -> str:
    """Return the rows as SVG, with an arrow from each link to the span that it names."""
    height = MARGIN * 2 + ROW_HEIGHT * (len(bars) + 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        *_legend(),
        *_rows(bars),
    ]
    return "\n".join([*lines, "</svg>", ""])


def _legend() -> Iterator[str]:
    left = MARGIN
    for colour, text in LEGEND:
        yield f'<rect x="{left}" y="{MARGIN - 10}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{left + 18}" y="{MARGIN}" fill="#333">{escape(text)}</text>'
        left += 40 + 8 * len(text)


def _rows(bars: Sequence[Bar]) -> Iterator[str]:
    scale = (WIDTH - LABEL_WIDTH - NOTE_WIDTH - MARGIN) / max(bar.end for bar in bars)
    middles = {bar.id: MARGIN + ROW_HEIGHT * (row + 1) + ROW_HEIGHT // 2 for row, bar in enumerate(bars)}
    places = {bar.id: (LABEL_WIDTH + bar.begin * scale, middles[bar.id]) for bar in bars}
    for bar in bars:
        left, middle = places[bar.id]
        width = max(3.0, (bar.end - bar.begin) * scale)
        indent = MARGIN + 18 * bar.depth
        yield f'<text x="{indent}" y="{middle + 5}" fill="#111">{escape(bar.label)}</text>'
        yield (
            f'<rect x="{left:.1f}" y="{middle - BAR_HEIGHT // 2}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="3" '
            f'fill="{bar.colour}"/>'
        )
        yield f'<text x="{left + width + 6:.1f}" y="{middle + 5}" fill="#555">{bar.end - bar.begin:.0f} ms</text>'
        for link in bar.links:
            x, y = places[link]
            yield (
                f'<path d="M{left:.1f} {middle} H{x - 16:.1f} V{y} H{x - 2:.1f}" fill="none" stroke="#555" '
                'stroke-dasharray="4 3" marker-end="url(#head)"><title>link</title></path>'
            )


def main() -> int:
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, default=PICTURE, help="the file to write")
    options = parser.parse_args()
    options.to.write_text(picture_of(bars_of(spans_of_a_turn())), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
