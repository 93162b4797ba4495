"""Charts and graphs as SVG, drawn by the server: the page runs no script for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from hermes_core.kit import clip
from hermes_core.safety.terminal import counted, escape_controls

MAX_LABEL_CHARS = 14

MAX_BAR_WIDTH = 60.0
"""Width of a bar with its gap. A home of one day has one bar, which is no wall."""


def graph(
    sizes: Mapping[str, int], ties: Mapping[tuple[str, ...], int], link: Callable[[str], str]
) -> Markup:
    """Return a graph with its nodes on a ring, each a link to what is known about it.

    Args:
        sizes: Number of facts by the name of an entity.
        ties: Number of facts that two entities share.
        link: Returns the address of what is known about an entity.
    """
    width, height = 760.0, 400.0
    radius_x, radius_y = 170.0, 180.0
    places: dict[str, tuple[float, float]] = {}
    half = (len(sizes) + 1) // 2
    for number, name in enumerate(sizes):
        # The labels stand beside the nodes, so that the nodes of a side are at equal distances from top to bottom.
        side, row, rows = (1, number, half) if number < half else (-1, number - half, len(sizes) - half)
        level = side * ((2 * row + 1) / rows - 1)
        x = width / 2 + side * radius_x * math.sqrt(1 - level**2)
        places[name] = (x, height / 2 + radius_y * level)
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
                '<a href="{}"><title>{}: {}</title><circle class="node" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>'
                '<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text></a>'
            ).format(
                link(name),
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
        unit: The noun that the values count, or %.
        top: Value of the highest possible bar; 0 for the highest value.
    """
    width, height, foot, head = 760.0, 190.0, 28.0, 28.0
    most = top or max((value for _, value in values), default=0) or 1
    step = min(width / max(len(values), 1), MAX_BAR_WIDTH)
    parts = [
        Markup('<line class="axis" x1="0" y1="{0:.1f}" x2="{1:.1f}" y2="{0:.1f}"/>').format(
            height - foot, width
        ),
        Markup('<text class="soft" x="4" y="20">{}</text>').format(_amount(most, unit)),
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
                _amount(value, unit),
            )
        )
    for number in {0, len(values) - 1} if values else ():
        anchor = "start" if number == 0 else "end"
        x = 4 if number == 0 else max(len(values) * step, 280) - 4
        parts.append(
            Markup('<text class="soft" x="{}" y="{:.1f}" text-anchor="{}">{}</text>').format(
                x, height - 7, anchor, values[number][0]
            )
        )
    return _drawing("chart", title, width, height, parts)


def _amount(value: float, unit: str) -> str:
    return f"{value:.0f} %" if unit == "%" else counted(round(value), unit)


def _drawing(kind: str, title: str, width: float, height: float, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="{}" role="{}" aria-label="{}" viewBox="0 0 {:.0f} {:.0f}">{}</svg>').format(
        kind, "group" if kind == "graph" else "img", title, width, height, Markup("").join(parts)
    )
