"""The figures as a picture in SVG, which every browser shows."""

from __future__ import annotations

from html import escape

from hermes_memory_eval.measure import EvalReport

WIDTH, BAR, GAP, LABELS = 760, 18, 14, 260
COLORS = ("#1f6feb", "#d29922", "#8b949e")


def draw(report: EvalReport) -> str:
    """Return a picture with a bar for each system and figure: what is found, and the tokens that it costs."""
    parts: list[str] = []
    y = 64
    for number, system in enumerate(report.systems):
        x = 16 + number * 160
        parts.append(f'<rect x="{x}" y="34" width="12" height="12" fill="{COLORS[number]}"/>')
        parts.append(f'<text x="{x + 18}" y="44">{escape(system.system)}</text>')
    rows: list[tuple[str, list[float], str]] = []
    for at, kind in enumerate(report.systems[0].kinds):
        of_kind = [system.kinds[at] for system in report.systems]
        rows.append((f"{kind.kind}: among ten results", [100 * one.hit_at_10 for one in of_kind], "%"))
        rows.append((f"{kind.kind}: in the turn", [100 * one.in_turn for one in of_kind], "%"))
    rows.append(("turns that ask nothing, with text", [100 * s.idle_share for s in report.systems], "%"))
    rows.append(("tokens of a turn that asks", [s.turn_tokens for s in report.systems], ""))
    rows.append(("tokens of a turn that asks nothing", [s.idle_tokens for s in report.systems], ""))
    rows.append(("milliseconds of a search", [s.search_ms for s in report.systems], " ms"))
    for label, values, unit in rows:
        most = 100.0 if unit == "%" else max(*values, 1.0)
        parts.append(f'<text x="16" y="{y + BAR * len(values) / 2 + 4:.0f}">{escape(label)}</text>')
        for number, value in enumerate(values):
            width = (WIDTH - LABELS - 90) * value / most
            top = y + number * BAR
            parts.append(
                f'<rect x="{LABELS}" y="{top + 2}" width="{width:.1f}" height="{BAR - 4}" fill="{COLORS[number]}"/>'
            )
            parts.append(f'<text x="{LABELS + width + 6:.1f}" y="{top + 13}">{value:,.1f}{unit}</text>')
        y += BAR * len(values) + GAP
    title = f"Recall on {report.messages:,} messages of {report.sessions:,} sessions"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img" font-family="sans-serif" '
        f'font-size="12"><title>{title}</title><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="16" y="22" font-size="15">{title}</text>{"".join(parts)}</svg>\n'
    )
