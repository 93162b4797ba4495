"""The figures of the panel for people: Markdown for README and docs, and a picture.

Figures are those that `recall.py --panel ... --json` prints, also with `--unasked`; several runs add up. A file that is
to hold the tables marks their place by `<!-- recall: begin -->` and `<!-- recall: end -->`, each on a line of its own;
with `<!-- recall: short -->` as the first line it gets the recall alone, without intervals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recall_turns import KINDS

SETS = {
    "locomo": "LoCoMo: two people, written by a model",
    "realtalk": "REALTALK: two people, real",
    "beam-100k": "BEAM: long chats with an assistant",
    "agent-history": "a coding agent's history, answers in tool output",
    "memdaily-zh": "MemDaily: Chinese",
    "long-questions": "LoCoMo, after 80 words on other things",
}

SYSTEMS = {
    "ours": "session search",
    "ours-semantic": "with `hermes-memory-semantic`",
    "plain-fts5": "plain FTS5",
    "fts5-bigrams": "FTS5, Chinese in pairs",
    "minilm-cosine": "MiniLM cosine",
    "hermes-session-search-or": "hermes-agent 0.19, words joined by OR",
    "hermes-session-search": "hermes-agent 0.19, the question",
    "hermes-holographic": "Holographic of hermes-agent 0.19",
    "mem0": "Mem0 without a language model",
}

# The systems of the short table: ours, the baselines that anybody can build, and the closest program.
SHORT = ("ours", "ours-semantic", "plain-fts5", "fts5-bigrams", "minilm-cosine", "hermes-session-search-or")

_PLACE = re.compile(
    r"(<!-- recall: (begin|short) -->\n).*?(<!-- recall: end -->)",
    re.DOTALL,
)

Row = Mapping[str, Any]


@dataclass
class Figures:
    """Figures of several runs; of the same figure, the last counts."""

    recall: dict[tuple[str, str], Row] = field(default_factory=dict)
    turns: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    gate: dict[tuple[str, str], Row] = field(default_factory=dict)

    def add(self, figures: Any) -> None:
        """Add the figures of a run, as `recall.py` prints them."""
        if isinstance(figures, list):
            self.recall |= {(row["set"], row["system"]): row for row in figures}
        else:
            self.turns |= {(row["set"], row["system"], row["kind"]): row for row in figures["turns"]}
            self.gate |= {(row["set"], row["system"]): row for row in figures["gate"]}

    def sets(self, keys: Iterable[tuple[str, ...]]) -> list[str]:
        """Return the names of the sets in the order of the tables, unknown names last."""
        names = list(dict.fromkeys(key[0] for key in keys))
        return sorted(names, key=lambda name: [*SETS, name].index(name))


def read(paths: Sequence[Path]) -> Figures:
    """Return the figures of files."""
    figures = Figures()
    for path in paths:
        figures.add(json.loads(path.read_text(encoding="utf-8")))
    return figures


def markdown(figures: Figures, *, short: bool = False) -> str:
    """Return all tables, or the recall alone if `short`."""
    if short:
        return _recall(figures, SHORT, lambda row: f"{100 * row['recall']:.1f}")
    parts = []
    if figures.recall:
        parts += [_recall(figures, SYSTEMS, _with_interval), _costs(figures)]
    if figures.turns:
        parts.append(_turns(figures))
    if figures.gate:
        parts.append(_gate(figures))
    return "\n".join(parts)


def insert(path: Path, figures: Figures) -> None:
    """Write the tables into the file, between its marks."""
    text = path.read_text(encoding="utf-8")
    if not _PLACE.search(text):
        raise SystemExit(
            f"{str(path)!r} has no line '<!-- recall: begin -->': add it where the tables belong"
        )
    new = _PLACE.sub(
        lambda place: f"{place[1]}\n{markdown(figures, short=place[2] == 'short')}\n{place[3]}", text
    )
    path.write_text(new, encoding="utf-8")


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _recall(figures: Figures, systems: Iterable[str], cell: Callable[[Row], str]) -> str:
    """Return a line for each set, the best system in bold."""
    known = {system for _, system in figures.recall}
    columns = [system for system in systems if system in known]
    rows = []
    for name in figures.sets(figures.recall):
        row = {system: figures.recall[name, system] for system in columns if (name, system) in figures.recall}
        best = max(f"{one['recall']:.3f}" for one in row.values())
        cells = (
            "" if system not in row else _bold(cell(row[system]), f"{row[system]['recall']:.3f}" == best)
            for system in columns
        )
        sample = next(iter(row.values()))
        rows.append([f"{SETS.get(name, name)} ({sample['questions']})", *cells])
    return _grid(["evidence among ten messages, % (questions)", *(SYSTEMS[s] for s in columns)], rows)


def _bold(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text


def _with_interval(row: Row) -> str:
    return "{:.1f} ({:.1f}-{:.1f})".format(*(100 * row[key] for key in ("recall", "low", "high")))


def _costs(figures: Figures) -> str:
    """Return a line for each set: the tokens of ten messages, and the CPU of a question where it is known."""
    known = {system for _, system in figures.recall}
    columns = [system for system in SYSTEMS if system in known]

    def cell(row: Row | None) -> str:
        if row is None:
            return ""
        return f"{row['tokens']:,.0f}" + (f"; {row['cpu_ms']:.0f} ms" if row["cpu_ms"] is not None else "")

    rows = (
        [SETS.get(name, name), *(cell(figures.recall.get((name, system))) for system in columns)]
        for name in figures.sets(figures.recall)
    )
    return _grid(["tokens of ten messages; CPU for each question", *(SYSTEMS[s] for s in columns)], rows)


def _turns(figures: Figures) -> str:
    """Return a line for each set: the share of turns that get anything, by kind, and the mean of their tokens."""
    systems = [system for system in SYSTEMS if any(key[1] == system for key in figures.turns)]
    kinds = [kind for kind in KINDS if any(key[2] == kind for key in figures.turns)]
    columns = [(system, kind) for system in systems for kind in kinds]

    def cell(row: Row | None) -> str:
        return "" if row is None else f"{100 * row['share']:.0f}; {row['tokens']:.0f}"

    rows = (
        [SETS.get(name, name), *(cell(figures.turns.get((name, *column))) for column in columns)]
        for name in figures.sets(figures.turns)
    )
    head = [f"{SYSTEMS[system]}: {kind.replace('_', ' ')}" for system, kind in columns]
    return _grid(["turns that get anything, %; tokens", *head], rows)


def _gate(figures: Figures) -> str:
    """Return a line for each set: the recall of a search, the same behind the gate, and the recall of what a turn gets."""
    systems = [system for system in SYSTEMS if any(key[1] == system for key in figures.gate)]

    def cells(row: Row | None) -> list[str]:
        if row is None:
            return ["", "", ""]
        return [f"{100 * row[key]:.1f}" for key in ("recall", "gated", "injected")]

    rows = (
        [
            SETS.get(name, name),
            *(cell for system in systems for cell in cells(figures.gate.get((name, system)))),
        ]
        for name in figures.sets(figures.gate)
    )
    head = [
        f"{SYSTEMS[s]}: {what}" for s in systems for what in ("asked for", "behind the gate", "in the turn")
    ]
    return _grid(["questions as turns, %", *head], rows)


def plot(figures: Figures, path: Path) -> None:
    """Draw the recall of each system on each set, with intervals."""
    import matplotlib  # only who wants a plot needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sets = figures.sets(figures.recall)
    known = {system for _, system in figures.recall}
    systems = [system for system in SYSTEMS if system in known]
    picture, axes = pyplot.subplots(figsize=(2 + 1.7 * len(sets), 4.8))
    colors = pyplot.get_cmap("tab10")
    for number, system in enumerate(systems):
        rows = [
            (at, figures.recall[name, system])
            for at, name in enumerate(sets)
            if (name, system) in figures.recall
        ]
        shares = [100 * row["recall"] for _, row in rows]
        ends = [
            [100 * (row["recall"] - row["low"]) for _, row in rows],
            [100 * (row["high"] - row["recall"]) for _, row in rows],
        ]
        shift = 0.8 * ((number + 0.5) / len(systems) - 0.5)
        places = [at + shift for at, _ in rows]
        color = "black" if system == "ours" else colors(number % 10)
        axes.errorbar(
            places, shares, yerr=ends, fmt="o", capsize=2, color=color, label=SYSTEMS[system].replace("`", "")
        )
    axes.set_xticks(range(len(sets)), [name.replace("-", "\n", 1) for name in sets])
    axes.set(ylabel="evidence among ten messages, %", ylim=(-3, 103))
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    picture.tight_layout()
    picture.savefig(path, dpi=150)
