"""The command `hermes-memory eval`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from hermes_core.cli import Failure, extensions_of, home_of
from hermes_core.cli.output import (
    note_unread,
    print_result,
    print_styled,
    print_table,
    progress_bar,
    warn,
)
from hermes_core.config import load_config
from hermes_core.kit import clip, printable, write_atomic
from hermes_core.safety.terminal import counted
from hermes_core.sessions.home_store import open_sessions
from hermes_core.storage.output_file import refuse_existing
from hermes_memory_eval.measure import MAX_SECONDS, EvalReport, measure
from hermes_memory_eval.plot import draw

# Questions of each kind: 600 searches and turns take under two minutes in 10,000 messages on a slow machine.
DEFAULT_QUESTIONS = 100


@click.command("eval")
@click.option(
    "--questions",
    "wanted",
    type=click.IntRange(1, 5000),
    default=DEFAULT_QUESTIONS,
    show_default=True,
    help="Questions of each kind, and turns that ask nothing.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    default=MAX_SECONDS / 60,
    show_default=True,
    help="Ask no further question after this time.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Draw other questions.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also draw the figures into FILE, a picture in SVG.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.pass_context
def eval_command(
    ctx: click.Context, wanted: int, minutes: float, seed: int, plot: Path | None, force: bool
) -> None:
    """Measure recall on your own past sessions. No model is called, nothing is sent, and nothing is stored.

    Questions are made from what was said: about facts that you told, questions that you asked before, and a few words of
    a message. Past sessions as they are configured, plain FTS5 and an agent without memory get the same ones.
    """
    if plot is not None:
        refuse_existing(plot, "replace it with --force", force=force)
    home = home_of(ctx)
    config = load_config(home)
    sends = config.recall.embeddings == "http"
    if sends:
        warn(
            "recall.embeddings is 'http': questions are not sent there, so past sessions are searched by words only"
        )
    # Without extensions there is no search by meaning.
    with closing(open_sessions(home, config, extensions=None if sends else extensions_of(ctx))) as sessions:
        if not sessions.database.exists:
            raise Failure("there are no past sessions to measure; import some: hermes-memory import FILE")
        with progress_bar("measuring", "questions") as bar:
            task = bar.add_task("", total=None)

            def show(done: int, total: int) -> None:
                bar.update(task, completed=done, total=total)

            report = measure(sessions, config, wanted=wanted, seed=seed, seconds=60 * minutes, progress=show)
    if not report.questions:
        raise Failure(
            f"no question can be made from {counted(report.messages, 'message')}; have more conversations, or import some: "
            "hermes-memory import FILE"
        )
    if plot is not None:
        write_atomic(plot, draw(report).encode())
    print_result(report, lambda: _show(report, plot))
    note_unread(report.unread)


def _show(report: EvalReport, plot: Path | None) -> None:
    how = "words and meaning" if report.by_meaning else "words"
    print_table(
        f"Recall on {counted(report.messages, 'message')} of {counted(report.sessions, 'session')}, by {how}",
        ("system", "questions", "hit@1", "hit@5", "hit@10", "in the turn"),
        [
            (
                system.system,
                f"{kind.kind} ({kind.questions})",
                f"{kind.hit_at_1:.0%}",
                f"{kind.hit_at_5:.0%}",
                f"{kind.hit_at_10:.0%} ({kind.low:.0%} to {kind.high:.0%})",
                f"{kind.in_turn:.0%}",
            )
            for system in report.systems
            for kind in system.kinds
        ],
        "",
    )
    print_table(
        "Cost",
        (
            "system",
            "tokens of ten results",
            "tokens of a turn that asks",
            "of one that asks nothing",
            "it gets any",
            "search",
            "95 of 100",
            "turn",
        ),
        [
            (
                system.system,
                f"{system.result_tokens:,.0f}",
                f"{system.turn_tokens:,.0f}",
                f"{system.idle_tokens:,.0f}",
                f"{system.idle_share:.0%}",
                f"{system.search_ms:.1f} ms",
                f"{system.search_ms_95:.1f} ms",
                f"{system.turn_ms:.1f} ms",
            )
            for system in report.systems
        ],
        "",
    )
    if report.missed:
        print_styled(
            ("Facts that a turn did not get", "bold"),
            ("  ask why with: hermes-memory recall --why-not ID QUESTION", "dim"),
        )
        for one in report.missed:
            print_styled(f"  message {one.message_id}: {printable(clip(one.question, 120))}")
    print_styled(("What this can't tell", "bold"))
    for sentence in report.limits:
        print_styled(f"  {sentence}", wrap=True)
    if report.left_over:
        print_styled(
            f"{counted(report.left_over, 'question')} and turns were left over: --minutes gives more time."
        )
    drawn = f"; the picture is in {plot}" if plot is not None else ""
    print_styled((printable(f"{report.seconds:.1f} s{drawn}"), "dim"))
