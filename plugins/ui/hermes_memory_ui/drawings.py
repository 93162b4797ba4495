"""Charts and graphs as SVG, drawn by the server: the page runs no script for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from markupsafe import Markup

from hermes_core.kit import clip
from hermes_core.safety.terminal import escape_controls

MAX_LABEL_CHARS = 18


def graph(sizes: Mapping[str, int], ties: Mapping[tuple[str, ...], int]) -> Markup:
    """Return a graph with its nodes on a circle, each a link to what is known about it.

    Args:
        sizes: Number of facts by the name of an entity.
        ties: Number of facts that two entities share.
    """
    width, height = 760.0, 400.0
    radius_x, radius_y = 220.0, 160.0
    places: dict[str, tuple[float, float]] = {}
    for number, name in enumerate(sizes):
        angle = 2 * math.pi * number / len(sizes) - math.pi / 2
        places[name] = (width / 2 + radius_x * math.cos(angle), height / 2 + radius_y * math.sin(angle))
    lines = [
        Markup(
            '<line class="edge" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke-width="{}"/>'
        ).format(*places[pair[0]], *places[pair[1]], min(count, 5))
        for pair, count in ties.items()
    ]
    nodes = []
    for name, (x, y) in places.items():
        right = x >= width / 2
        nodes.append(
            Markup(
                '<a href="/facts?{}"><title>{}: {}</title><circle class="node" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>'
                '<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text></a>'
            ).format(
                urlencode({"entity": name}, errors="replace"),
                escape_controls(name),
                sizes[name],
                x,
                y,
                5 + min(math.sqrt(sizes[name]) * 2, 10),
                x + (18 if right else -18),
                y + 4,
                "start" if right else "end",
                escape_controls(clip(name, MAX_LABEL_CHARS)),
            )
        )
    return _drawing("graph", "Entities that share facts", width, height, [*lines, *nodes])


def bars(title: str, values: Sequence[tuple[str, float]], unit: str, *, top: float = 0.0) -> Markup:
    """Return a chart with a bar for each value.

    Args:
        title: What the chart shows, for people who don't see it.
        values: (label, value), from left to right.
        unit: What the values count.
        top: Value of the highest possible bar; 0 for the highest value.
    """
    width, height, foot, head = 760.0, 180.0, 24.0, 20.0
    most = top or max((value for _, value in values), default=0) or 1
    step = width / max(len(values), 1)
    parts = [
        Markup('<line class="axis" x1="0" y1="{0:.1f}" x2="{1:.1f}" y2="{0:.1f}"/>').format(
            height - foot, width
        ),
        Markup('<text class="soft" x="4" y="14">{}</text>').format(f"{most:,.0f} {unit}"),
    ]
    for number, (label, value) in enumerate(values):
        size = (height - foot - head) * value / most
        parts.append(
            Markup(
                '<rect class="bar" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}: {}</title></rect>'
            ).format(
                number * step + step * 0.1,
                height - foot - size,
                step * 0.8,
                size,
                label,
                f"{value:,.0f} {unit}",
            )
        )
    for number in {0, len(values) - 1} if values else ():
        anchor = "start" if number == 0 else "end"
        x = 4 if number == 0 else width - 4
        parts.append(
            Markup('<text class="soft" x="{}" y="{:.1f}" text-anchor="{}">{}</text>').format(
                x, height - 7, anchor, values[number][0]
            )
        )
    return _drawing("chart", title, width, height, parts)


def _drawing(kind: str, title: str, width: float, height: float, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="{}" role="{}" aria-label="{}" viewBox="0 0 {:.0f} {:.0f}">{}</svg>').format(
        kind, "group" if kind == "graph" else "img", title, width, height, Markup("").join(parts)
    )
